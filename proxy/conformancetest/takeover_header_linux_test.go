package conformancetest

import (
	"fmt"
	"io"
	"testing"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

func TestAnEndpointGetsOneHeaderHoweverManyTakeOversThereAre(t *testing.T) {
	for _, version := range versions {
		t.Run(version.String(), func(t *testing.T) {
			nodes := newNodes(t, liveConfig(), 3)
			at, headers := headedServer(t, proxytest.Chat("web"))
			port := proxytest.FreePort(t)
			hole, web := endpoints("web", proxytest.BlackHole(t)), endpoints("web", at)
			nodes[0].apply(headed("web", version, tcp(port)), hole)
			client := proxytest.TalkTo(t, proxytest.On(port))
			answered := make(chan error, 1)
			go func() {
				_, err := client.Say("said before an endpoint answered")
				answered <- err
			}()
			proxytest.Eventually(t, func() bool { return totalsOf(nodes[0], "web").Active == 1 }, "the client")
			nodes[0].passTo(nodes[1], headed("web", version, tcp(port)), web)
			if err := proxytest.Receive(t, answered, "the answer"); err != nil {
				t.Fatal(err)
			}
			proxytest.Receive(t, headers, "the header").expect(t, client.Conn)
			nodes[1].passTo(nodes[2], headed("web", version, tcp(port)), web)
			client.MustSay(t, "said to the third")
			if len(headers) > 0 {
				t.Errorf("the endpoint got another connection")
			}
		})
	}
}

// A successor waits for the rest of a header, and passes on to the endpoint, and to its own successor, who the client is.
func TestAClientIsIntroducedThroughTakeOvers(t *testing.T) {
	cfg := liveConfig()
	cfg.ProxyProtocolFrom = loopbackRange
	var log ended
	cfg.Ended = log.note
	nodes := newNodes(t, cfg, 4)
	at, headers := headedServer(t, proxytest.Chat("web"))
	port := proxytest.FreePort(t)
	hole := endpoints("web", proxytest.BlackHole(t))
	records := []change{headed("web", registry.ProxyV1, tcp(port)), endpoints("web", at)}
	nodes[0].apply(records[0], hole)
	client := proxytest.TalkTo(t, proxytest.On(port))
	proxytest.Eventually(t, func() bool { return totalsOf(nodes[0], "web").Active == 1 }, "the client")
	header := withTLVs(string(proxyproto.Append(nil, registry.ProxyV2, stranger.Source, stranger.Destination)), "\x02\x00\x05db.ex")
	io.WriteString(client.Conn, header[:20])
	nodes[0].passTo(nodes[1], records[0], hole)
	io.WriteString(client.Conn, header[20:]) // and the endpoint does not answer
	nodes[1].passTo(nodes[2], records...)
	client.MustSay(t, "hello")
	if h := proxytest.Receive(t, headers, "the header"); h != (heard{Header: stranger}) {
		t.Errorf("the endpoint was told of %+v", h)
	}
	nodes[2].passTo(nodes[3], records...)
	client.MustSay(t, "hello again")
	client.Conn.Close()
	if e := log.of(t, registry.TCP, 1)[0]; e.Client != stranger.Source || e.Via != addressOf(client.Conn.LocalAddr()) || e.TLVs != "authority=db.ex" {
		t.Errorf("the log has %+v", e)
	}
}

func TestDatagramsBearAHeaderAfterATakeOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{headed("dns", registry.ProxyV2, udp(port)), endpoints("dns", headedUDP(t, "one").Addr)}
	nodes[0].apply(records...)
	client := proxytest.DialUDP(t, proxytest.On(port))
	ask := func() string {
		t.Helper()
		answer, err := client.Exchange([]byte("question"))
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	before := ask()
	if want := fmt.Sprintf("one: %v %v <nil> %q", client.LocalAddr(), proxytest.On(port), "question"); before != want {
		t.Errorf("answered %q; want %q", before, want)
	}
	nodes[0].passTo(nodes[1], records...)
	if after := ask(); after != before {
		t.Errorf("answered %q after the take-over, and %q before", after, before)
	}
}
