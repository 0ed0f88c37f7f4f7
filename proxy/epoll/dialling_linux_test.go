package epoll

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
)

// The kernel tells once that an endpoint has answered. That another one fails in the same moment, and is asked first, does not hide it.
func TestAnEndpointThatAnswersWhileAnotherFailsHasTheClient(t *testing.T) {
	l, _ := newEpollPort(t, proxytest.Hold)
	fails, answers := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Reset).Addr, proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold).Addr
	r := enginetest.NewRotation(fails, answers)
	owner := enginetest.OwnerOf(r)
	ours := accepted(t)
	l.requests.Call(func() {
		ds := &l.dialler
		ds.engine.Budget.Take(2)
		account, _ := tcp.Admit(ds.engine, owner.Load(), 80, netip.MustParseAddrPort("127.0.0.1:1"))
		c, s := ds.conns.Begin(ours, owner, account), ds.spare.Take()
		s.race.Begin(&ds.races, c.Account.Choose(), ds.turn.Now)
		ds.ongoing[c.Index()] = s
		ds.conns.Enter(c, relay.Dialling)
		dial := func(now time.Duration, until int16) {
			step := s.race.Next(now)
			fd, errno := socket.Connect(step.To)
			if step.Do != tcp.Dial || errno != 0 {
				t.Errorf("%+v, %v; want a dial", step, errno)
				return
			}
			for polled := []unix.PollFd{{Fd: int32(fd), Events: until}}; polled[0].Revents&until == 0; {
				_, _ = unix.Poll(polled, 1000)
			}
			s.sockets = append(s.sockets, connecting{id: step.ID, fd: int32(fd), to: step.To})
			if err := ds.poller.Watch(fd, c.Token(relay.BackendSide), relay.News|unix.EPOLLOUT); err != nil {
				t.Error(err)
			}
		}
		dial(ds.turn.Now, unix.POLLHUP)
		dial(ds.turn.Now+engine.Stagger, unix.POLLOUT)
		l.poller.Poll() // this tells of both
		ds.progress(c, unix.EPOLLOUT)
		if !c.IsRelayed() {
			t.Error("the client still waits")
		}
	})
	for _, e := range r.Endpoints() {
		want := uint64(0)
		if e.Addr == fails {
			want = 1
		}
		if got := e.Status(); got.Failures != want || got.Active != int64(1-want) {
			t.Errorf("%v has failed %d times, and has %d clients; want %d and %d", e.Addr, got.Failures, got.Active, want, 1-want)
		}
	}
}

// accepted returns the descriptor of a client, which stays until the test ends.
func accepted(t *testing.T) (fd int) {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(proxytest.Loopback, 0)))
	enginetest.Must(t, err)
	defer l.Close()
	proxytest.Dial(t, l.Addr().(*net.TCPAddr).AddrPort())
	conn, err := l.AcceptTCP()
	enginetest.Must(t, err)
	defer conn.Close()
	raw, err := conn.SyscallConn()
	enginetest.Must(t, err)
	enginetest.Must(t, raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }))
	enginetest.Must(t, err)
	return fd
}
