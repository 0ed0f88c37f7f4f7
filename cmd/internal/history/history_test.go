package history

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

func addrs(texts ...string) registry.Addrs {
	var list []registry.Addr
	for _, text := range texts {
		list = append(list, registry.Addr{IP: netip.MustParseAddrPort(text)})
	}
	return registry.NewAddrs(list...)
}

func behind(weights string, texts ...string) *registry.Endpoints {
	return &registry.Endpoints{ByPort: []registry.PortAddrs{{Addrs: addrs(texts...)}}, Weights: registry.Weights(weights)}
}

func TestAChangeIsSaidInWords(t *testing.T) {
	web := &registry.Service{Ports: []registry.Port{{Number: 80}}}
	moved := &registry.Service{Ports: []registry.Port{{Number: 81}, {Name: "dns", Protocol: registry.UDP, Number: 53}}}
	sticky := &registry.Service{Ports: web.Ports, Asked: &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: time.Hour, Checks: registry.Check{Interval: time.Second}}}
	standsBy, near := behind("", "10.0.0.1:80", "10.0.0.2:80"), behind("", "10.0.0.1:80", "10.0.0.2:80")
	standsBy.ByPort[0].Places = registry.Places([]byte{0, byte(registry.Backup)})
	near.ByPort[0].Places = registry.Places([]byte{byte(registry.InZone), 0})
	for _, c := range []struct{ got, want string }{
		{ofService(nil, web), "none → tcp port 80"},
		{ofService(web, nil), "tcp port 80 → none"},
		{ofService(web, moved), "tcp port 80 → tcp port 81, udp port 53 (dns)"},
		{ofService(web, sticky), "affinity none → ClientIP; affinity timeout none → 1h0m0s; checks interval none → 1s"},
		{ofEndpoints(nil, behind("", "10.0.0.1:80")), "0 → 1 endpoints (came 10.0.0.1:80)"},
		{ofEndpoints(behind("", "10.0.0.1:80"), nil), "1 → 0 endpoints (went 10.0.0.1:80)"},
		{ofEndpoints(behind("", "10.0.0.1:80", "10.0.0.2:80"), behind("", "10.0.0.2:80", "10.0.0.3:80")), "2 → 2 endpoints (came 10.0.0.3:80, went 10.0.0.1:80)"},
		{ofEndpoints(behind("", "10.0.0.1:80", "10.0.0.2:80"), behind("", "10.0.0.2:80", "10.0.0.1:80")), "2 → 2 endpoints (in another order)"},
		{ofEndpoints(behind("", "10.0.0.1:80"), behind("10.0.0.1=0", "10.0.0.1:80")), "weights all alike → 10.0.0.1=0"},
		{ofEndpoints(behind("", "10.0.0.1:80", "10.0.0.2:80"), standsBy), "backups none → 10.0.0.2:80"},
		{ofEndpoints(standsBy, near), "backups 10.0.0.2:80 → none"},
		{ofEndpoints(behind("", "10.0.0.1:80", "10.0.0.2:80"), near), "the nodes or zones of endpoints"},
	} {
		if c.got != c.want {
			t.Errorf("%q; want %q", c.got, c.want)
		}
	}
}

// TestAChangeOfManyPortsIsSaidInShort: to put all into words took the time of everybody who waits for a source.
func TestAChangeOfManyPortsIsSaidInShort(t *testing.T) {
	many := new(registry.Endpoints)
	for i := range 1000 {
		many.ByPort = append(many.ByPort, registry.PortAddrs{Port: fmt.Sprintf("p%03d", i), Addrs: addrs("10.0.0.1:80")})
	}
	if got := ofEndpoints(nil, many); strings.Count(got, "came") != maxListed || !strings.HasSuffix(got, "; and of 996 more ports") {
		t.Errorf("%q", got)
	}
	if got, want := ofEndpoints(many, many), "the nodes or zones of endpoints"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestAChangeBeyondWhatIsListedIsSaid, and one of what no port's number shows.
func TestAChangeBeyondWhatIsListedIsSaid(t *testing.T) {
	service := func(numbers ...uint16) *registry.Service {
		s := new(registry.Service)
		for _, n := range numbers {
			s.Ports = append(s.Ports, registry.Port{Number: n})
		}
		return s
	}
	standBy := func(numbers ...int) *registry.Endpoints {
		e, places := behind("", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.6:80"), make([]byte, 6)
		for _, n := range numbers {
			places[n-1] = byte(registry.Backup)
		}
		e.ByPort[0].Places = registry.Places(places)
		return e
	}
	local, open := service(80), service(80)
	local.Ports[0].Local, open.Ports[0].Open = true, true
	for _, c := range []struct{ got, want string }{
		{ofService(service(1, 2, 3, 4, 5), service(1, 2, 3, 4, 6)), "tcp port 1, tcp port 2, tcp port 3, tcp port 4 and 1 more: came tcp port 6, went tcp port 5"},
		{ofService(service(1, 2, 3, 4, 5, 6), service(1, 2, 3, 4, 6, 5)), "tcp port 1, tcp port 2, tcp port 3, tcp port 4 and 2 more: in another order"},
		{ofService(service(1, 2, 3, 4, 5), service(1, 2, 3, 4)), "tcp port 1, tcp port 2, tcp port 3, tcp port 4 and 1 more → tcp port 1, tcp port 2, tcp port 3, tcp port 4"},
		{ofService(service(80), local), "tcp port 80 → tcp port 80 (policy Local)"},
		{ofService(local, open), "tcp port 80 (policy Local) → tcp port 80 (for any client)"},
		{ofEndpoints(standBy(1, 2, 3, 4, 5), standBy(1, 2, 3, 4, 6)), "backups 10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80, 10.0.0.4:80 and 1 more: came 10.0.0.6:80, went 10.0.0.5:80"},
		{ofService(service(1, 2, 3, 4, 5), service(1, 2, 3, 4, 5)), "written again, or it is from another source"},
	} {
		if c.got != c.want {
			t.Errorf("%q; want %q", c.got, c.want)
		}
	}
}

// TestTheLastChangesAreRemembered: a thousand, and of those the last that are asked for.
func TestTheLastChangesAreRemembered(t *testing.T) {
	var h History
	if last, ever := h.Last(10, nil); len(last) != 0 || ever != 0 {
		t.Errorf("of none: %v, %d", last, ever)
	}
	for i := range Room + 234 {
		h.Note(Entry{Service: fmt.Sprint(i % 2), Change: fmt.Sprint(i)})
	}
	all, ever := h.Last(Room+1, nil)
	if len(all) != Room || ever != Room+234 || all[0].Change != "234" || all[Room-1].Change != "1233" {
		t.Errorf("%d of %d, from %q to %q", len(all), ever, all[0].Change, all[len(all)-1].Change)
	}
	some, _ := h.Last(3, func(e *Entry) bool { return e.Service == "0" })
	if len(some) != 3 || some[0].Change != "1228" || some[2].Change != "1232" {
		t.Errorf("the last three of service 0: %+v", some)
	}
}

func TestAnEntryNamesWhoMadeIt(t *testing.T) {
	uid := 1000
	for want, e := range map[string]Entry{
		"etcd@42: service default/web: x":                            {Source: "etcd", Revision: 42, Of: "service", Service: "default/web", Change: "x"},
		"etcd@42, which a full list found: endpoints default/web: x": {Source: "etcd", Revision: 42, Of: "endpoints", Service: "default/web", Change: "x", Corrected: true},
		"operator (uid 1000): override default/web: x":               {Source: Operator, UID: &uid, Of: "override", Service: "default/web", Change: "x"},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
	if strings.ContainsRune(ofService(nil, &registry.Service{Ports: []registry.Port{{Name: "\x1b[2J", Number: 80}}}), 0x1b) {
		t.Error("the name of a port reaches the log as it is")
	}
}

// TestChangesOfAStepThatHasMoreThanAreRememberedCount: of a wiped registry it is seen that the list is not whole.
func TestChangesOfAStepThatHasMoreThanAreRememberedCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h History
		b := config.NewBroadcaster()
		b.Observe(h.Observe)
		mux := config.NewMux(b)
		updates := mux.Channel("etcd")
		ctx, stop := context.WithCancel(t.Context())
		go mux.Run(ctx)
		updates <- registry.Update{Set: true}
		all := registry.Update{Set: true}
		for i := range Room + 500 {
			all.Services = append(all.Services, registry.Change[registry.Service]{Name: registry.Name{Name: fmt.Sprint(i)}, Value: &registry.Service{}})
		}
		updates <- all
		synctest.Wait()
		if last, ever := h.Last(Room+1, nil); len(last) != Room || ever != Room+500 {
			t.Errorf("%d of %d; want %d of %d", len(last), ever, Room, Room+500)
		}
		stop()
		synctest.Wait()
	})
}
