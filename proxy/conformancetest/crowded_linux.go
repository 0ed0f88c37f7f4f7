package conformancetest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Many services, and descriptors or ports that do not suffice for all.

// A crowd is a proxy in a process of its own with few descriptors and many services, all of which have the
// one endpoint, and which are on ports that follow each other.
type crowd struct {
	*proxytest.Process
	ports []uint16
}

// crowded starts a proxy that may have so many descriptors, for so many services.
func (s suite) crowded(t *testing.T, descriptors uint64, services int, test func(t *testing.T, c *crowd)) {
	cfg := s.config()
	if proxytest.Inside(t) {
		serveCrowded(t, cfg)
		return
	}
	proxytest.NothingLeaks(t)
	web := served(t, proxytest.Chat("web"))
	c := new(crowd)
	for range services {
		c.ports = append(c.ports, proxytest.FreePort(t))
	}
	slices.Sort(c.ports)
	setting, err := json.Marshal(crowdSetting{descriptors, c.ports, web})
	if err != nil {
		t.Fatal(err)
	}
	c.Process = proxytest.Start(t, fewEnv+"="+string(setting))
	if got := c.Ask("ready?"); got != "ready" {
		t.Fatalf("the proxy of many services: %q", got)
	}
	test(t, c)
}

type crowdSetting struct {
	Descriptors uint64
	Ports       []uint16
	Web         registry.Addr
}

// serveCrowded is the other process.
func serveCrowded(t *testing.T, cfg proxy.Config) {
	var setting crowdSetting
	if err := json.Unmarshal([]byte(os.Getenv(fewEnv)), &setting); err != nil {
		t.Fatal(err)
	}
	limitDescriptors(t, setting.Descriptors)
	n := newNode(t, cfg)
	name := func(i int) string { return fmt.Sprintf("s%04d", i) }
	var all []change
	for i, port := range setting.Ports {
		all = append(all, service(name(i), tcp(port)), endpoints(name(i), setting.Web))
	}
	n.tell(all...)
	proxytest.Obey(t, func(command string) string {
		var i int
		if _, err := fmt.Sscanf(command, "remove the first %d", &i); err == nil {
			var gone []change
			for k := range i {
				gone = append(gone, noService(name(k)))
			}
			n.tell(gone...)
		}
		switch command {
		case "closed": // how many ports are not open, and which is the first of them, and why
			closed, first := 0, ""
			for _, s := range n.Status() {
				if s.Err != nil {
					if closed++; closed == 1 {
						first = fmt.Sprintf(" from %d: %v", s.ID.Number, s.Err)
					}
				}
			}
			return fmt.Sprint(closed, first)
		case "listeners": // the limit
			for _, l := range n.Limits() {
				if l.Name == "listeners" {
					return fmt.Sprint(l.Used, " of ", l.Max)
				}
			}
		}
		return "ready"
	})
}

// talkWith has clients talk to a service each, one after the other of those on ports, and keeps them all.
func talkWith(t *testing.T, ports []uint16, clients int) (talks []*proxytest.Talk) {
	t.Helper()
	for i := range clients {
		talk, err := talkTo(t, proxytest.On(ports[i%len(ports)]))
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			return talks
		}
		talks = append(talks, talk)
	}
	return talks
}

// What 10,000 services leave of 20,000 descriptors, in a tenth of the size: room for 4,000 connections.
func (s suite) TestAsManyServicesAsHalfTheDescriptorsLeaveRoomForConnections(t *testing.T) {
	const tenth = 10
	s.crowded(t, 20_000/tenth, 10_000/tenth, func(t *testing.T, c *crowd) {
		if got := c.Ask("closed"); got != "0" {
			t.Fatalf("ports that are not open: %s", got)
		}
		for _, talk := range talkWith(t, c.ports, 4_000/tenth) {
			talk.MustSay(t, "still here")
		}
	})
}

// Where there are more services than descriptors, those that have ports also have clients. It is known which do
// not, and why; the log has a few lines of it; and when others go they come by themselves.
func (s suite) TestMoreServicesThanDescriptorsLeaveSomeThatWork(t *testing.T) {
	const descriptors, services = 400, 500
	const room = (descriptors - 128) * 3 / 4
	s.crowded(t, descriptors, services, func(t *testing.T, c *crowd) {
		want := fmt.Sprintf("%d from %d: out of descriptors: of the limit of %d, listeners may have %d and have them all", services-room, c.ports[room], descriptors, room)
		if got := c.Ask("closed"); got != want {
			t.Errorf("ports that are not open: %s; want %s", got, want)
		}
		if got, want := c.Ask("listeners"), fmt.Sprintf("%d of %d", room, room); got != want {
			t.Errorf("limit of listeners: %s; want %s", got, want)
		}
		for _, talk := range talkWith(t, c.ports[:room], 20) {
			talk.MustSay(t, "still here")
			talk.Conn.Close()
		}
		if proxytest.Listens(proxytest.On(c.ports[room])) {
			t.Errorf("port %d is open", c.ports[room])
		}
		if lines := c.LogLines(); lines > 20 {
			t.Errorf("%d lines are logged for %d ports that cannot be opened", lines, services-room)
		}
		c.Ask(fmt.Sprintf("remove the first %d", services-room))
		if got := c.Ask("closed"); got != "0" {
			t.Errorf("when there is room for all, ports that are not open: %s", got)
		}
		for _, talk := range talkWith(t, c.ports[services-room:], 20) {
			talk.MustSay(t, "still here")
		}
		if lines := c.LogLines(); lines > 50 {
			t.Errorf("%d lines are logged in all", lines)
		}
	})
}
