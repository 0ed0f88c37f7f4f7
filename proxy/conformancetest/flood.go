package conformancetest

import (
	"net"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// When more clients come anew than may be given sessions in a second, the rest is dropped, and counted. Who has a session
// goes on, and who asks again is let in when it is his turn.
func (s suite) TestNewcomersAreGivenSessionsAtAPaceAndKnownClientsDoNotNoticeIt(t *testing.T) {
	const strangers = 50
	cfg := s.config()
	cfg.MaxNewUDPSessions = 1
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"))
	client := proxytest.DialUDP(t, addr)
	began := time.Now()
	had := client.Ask(t)
	for range strangers {
		proxytest.DialUDP(t, addr).Write([]byte("let me in"))
	}
	proxytest.Eventually(t, func() bool { return int(totalsOf(n, "dns").Active)+overloads(n, "dns") == 1+strangers }, "all of %d clients have come", 1+strangers)
	if most := 1 + int(time.Since(began)/time.Second) + 1; int(totalsOf(n, "dns").Active) > most {
		t.Errorf("%d of %d newcomers were given sessions; want one a second, and so at most %d", totalsOf(n, "dns").Active, 1+strangers, most)
	}
	if got := client.Ask(t); got != had {
		t.Errorf("a known client had %v and now has %v", had, got)
	}
	proxytest.DialUDP(t, addr).AskOften(t)
}

// A flood of newcomers to one service takes a part of what may begin in a second, and leaves the rest to others.
func (s suite) TestAFloodOfNewcomersLeavesRoomForThoseOfOtherServices(t *testing.T) {
	cfg := s.config()
	cfg.MaxNewUDPSessions = 100
	n := newNode(t, cfg)
	flooded := udpThrough(t, n, servedUDP(t, "flooded"))
	quiet := proxytest.On(proxytest.FreePort(t))
	n.apply(service("quiet", udp(quiet.Port())), endpoints("quiet", servedUDP(t, "quiet")))
	over := make(chan struct{})
	var flood sync.WaitGroup
	defer flood.Wait()
	defer close(over)
	flood.Go(func() {
		for !isClosed(over) {
			stranger, err := net.Dial("udp", flooded.String())
			if err != nil {
				t.Error(err)
				return
			}
			stranger.Write([]byte("let me in"))
			stranger.Close()
		}
	})
	proxytest.Eventually(t, func() bool { return overloads(n, "dns") > 0 }, "more have come than may begin")
	for range 3 {
		proxytest.DialUDP(t, quiet).Ask(t)
	}
}

// overloads tells how many newcomers to a service were dropped because there were too many.
func overloads(n *node, name string) (sum int) {
	for _, why := range traffic.DropReasons() {
		if why.Code() == "overload" {
			sum += int(totalsOf(n, name).Dropped[why])
		}
	}
	return sum
}
