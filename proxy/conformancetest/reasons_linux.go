package conformancetest

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// linuxReasonCases are the reasons that take a process with a network of its own.
var linuxReasonCases = []reasonCase{
	{why: traffic.ClientVanished, when: "the client's machine goes", config: probing, do: func(t *testing.T, b *bookish) {
		accepted, hold := make(chan struct{}), make(chan struct{})
		at := b.serve(t, served(t, func(*net.TCPConn) { accepted <- struct{}{}; <-hold }))
		t.Cleanup(func() { close(hold) })
		peer := proxytest.NewPeer(t)
		peer.Do(t, func() error {
			client, err := net.Dial("tcp", netip.AddrPortFrom(peer.Here, at.Port()).String())
			if err == nil {
				t.Cleanup(func() { client.Close() })
			}
			return err
		})
		proxytest.Receive(t, accepted, "the endpoint to accept")
		peer.Vanish(t)
	}},
	{why: traffic.EndpointVanished, when: "the endpoint's machine goes, and the client finishes", config: func(cfg *proxy.Config) {
		probing(cfg)
		cfg.HalfClosedTimeout = time.Hour
	}, do: func(t *testing.T, b *bookish) {
		peer, client := b.dialPeer(t)
		peer.Vanish(t)
		client.Write([]byte("lost")) // what is not acknowledged keeps keepalive from asking
		client.CloseWrite()
		b.sent = 4
	}},
	{why: traffic.EndpointVanished, when: "the machine of an endpoint goes to which nothing is being said", config: probing, do: func(t *testing.T, b *bookish) {
		peer, _ := b.dialPeer(t)
		peer.Vanish(t)
	}},
	{why: traffic.AllFailed, when: "all endpoints fail their checks, and the service refuses then", do: func(t *testing.T, b *bookish) {
		talk := b.failCheck(t, registry.Failure{Refuse: true})
		talk.Conn.Close()
		refuses(t, b.at)
	}},
	{why: traffic.EndpointFailed, when: "its endpoint fails its checks, and the service closes then", do: func(t *testing.T, b *bookish) {
		b.cuts(t, b.failCheck(t, registry.Failure{Close: true}))
		b.sent, b.received = 6, 13 // a line, and the same with a name before it
	}},
	{why: traffic.DescriptorLimit, when: "others have all descriptors", do: func(t *testing.T, b *bookish) {
		at := b.serve(t, served(t, proxytest.Identify("web")))
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(client) })
		limitDescriptors(t, fewDescriptors)
		var hoard []*os.File
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			hoard = append(hoard, f)
		}
		t.Cleanup(func() {
			for _, f := range hoard {
				f.Close()
			}
		})
		hoard[0].Close() // enough to accept a client, and not to dial for it
		if err := unix.Connect(client, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
			t.Fatal(err)
		}
	}},
}

func (s suite) TestEveryReasonThatTakesAnotherMachineIsWhatWasDone(t *testing.T) {
	for _, c := range linuxReasonCases {
		t.Run(c.name(), func(t *testing.T) {
			if proxytest.InOwnNetwork(t) {
				s.causes(t, c)
			}
		})
	}
}

// failCheck has a client talk to an endpoint, and then the checks of that fail.
func (b *bookish) failCheck(t *testing.T, how registry.Failure) *proxytest.Talk {
	t.Helper()
	all, addrs := sites(t, 200)
	b.at = proxytest.On(proxytest.FreePort(t))
	b.apply(failing(how, checkedService("web", tcp(b.at.Port()), registry.Check{Path: "/"})), endpoints("web", addrs...))
	b.failing(0)
	talk := proxytest.TalkTo(t, b.at)
	talk.MustSay(t, "hello")
	all[0].status.Store(500)
	b.failing(1)
	return talk
}

// probing makes keepalive find out soon, about clients from another machine too.
func probing(cfg *proxy.Config) {
	cfg.TCPKeepAlive = time.Second      // the shortest that the kernel knows
	cfg.DialTimeout = 4 * time.Second   // a link that is new may lose the first SYN
	cfg.HalfClosedTimeout = time.Second // which a relay waits for what can no longer be delivered
	cfg.BindAddress = netip.IPv4Unspecified()
}

// dialPeer connects to the service "web", whose endpoint is on another machine.
func (b *bookish) dialPeer(t *testing.T) (*proxytest.Peer, *net.TCPConn) {
	t.Helper()
	peer := proxytest.NewPeer(t)
	var listener *net.TCPListener
	peer.Do(t, func() (err error) {
		if listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: peer.There.AsSlice()}); err == nil {
			err = listener.SetDeadline(time.Now().Add(proxytest.Patience))
		}
		return err
	})
	t.Cleanup(func() { listener.Close() })
	client := proxytest.Dial(t, b.serve(t, proxytest.At(listener.Addr().(*net.TCPAddr).AddrPort())))
	endpoint, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endpoint.Close() })
	return peer, client
}
