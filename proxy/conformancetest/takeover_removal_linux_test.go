package conformancetest

import (
	"iter"
	"testing"
	"time"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
)

// ageRemovals has what was removed when items were made have been removed so much earlier, and fails if there is nothing of the kind.
func ageRemovals(t *testing.T, items iter.Seq2[takeover.Item, error], by time.Duration) iter.Seq2[takeover.Item, error] {
	return func(yield func(takeover.Item, error) bool) {
		aged := 0
		for item, err := range items {
			if err != nil {
				t.Error(err)
				return
			}
			record, err := handover.Decode(item)
			if err != nil {
				t.Error(err)
				return
			}
			if r, ok := record.(*handover.TCP); ok {
				for _, gone := range []*time.Duration{&r.EndpointGone, &r.ServiceGone} {
					if *gone > 0 {
						*gone += by
						aged++
					}
				}
				item = handover.Encode(r, item.Descriptors...)
			}
			if !yield(item, nil) {
				return
			}
		}
		if aged == 0 {
			t.Error("no connection is handed over as one whose endpoint or service was removed")
		}
	}
}

// With -on_removal=close-after the time of a connection runs from the removal, not from the take-over, also when what was removed has been
// put back meanwhile.
func TestTheTimeAfterARemovalGoesOnInATakeOver(t *testing.T) {
	for _, gone := range []string{"service", "endpoint"} {
		for _, c := range []struct {
			name   string
			ago    time.Duration
			back   bool
			goesOn bool
		}{{"in time", time.Minute, false, true}, {"late", time.Hour, false, false}, {"late and put back", time.Hour, true, false}} {
			t.Run(gone+", "+c.name, func(t *testing.T) {
				cfg := liveConfig()
				cfg.OnRemoval = removal.Policy{Close: true, After: 30 * time.Minute}
				nodes := newNodes(t, cfg, 2)
				port := proxytest.FreePort(t)
				one, other := served(t, proxytest.Chat("one")), served(t, proxytest.Chat("other"))
				nodes[0].apply(service("web", tcp(port)), endpoints("web", one))
				client := proxytest.TalkTo(t, proxytest.On(port))
				client.MustSay(t, "hello")
				before := []change{service("web", tcp(port)), endpoints("web", one)}
				after := []change{service("web", tcp(port)), endpoints("web", other)}
				if gone == "service" {
					after = []change{service("web", tcp(proxytest.FreePort(t))), endpoints("web", one)}
				}
				nodes[0].apply(after...)
				if c.back {
					after = before
					nodes[0].apply(before...)
				}
				if !nodes[0].giveListeners(nodes[1], after...) {
					t.Fatal("the successor cannot adopt connections")
				}
				if err := nodes[1].Adopt(ageRemovals(t, nodes[0].freeze(), c.ago)); err != nil {
					t.Fatal(err)
				}
				nodes[1].Serve()
				nodes[0].Release()
				nodes[0].end()
				if _, err := client.Say("still there?"); c.goesOn != (err == nil) {
					t.Errorf("goes on: %v; say: %v", c.goesOn, err)
				}
			})
		}
	}
}
