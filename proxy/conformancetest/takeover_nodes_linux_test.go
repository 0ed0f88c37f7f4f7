package conformancetest

import (
	"iter"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy"
)

// newNodes starts as many proxies: each is to take over from the one before. Their engines are such that, of six, either live engine takes
// over from itself and from the other.
func newNodes(t *testing.T, cfg proxy.Config, n int) []*node {
	t.Helper()
	configs := slices.Repeat([]proxy.Config{cfg}, n)
	if cfg.Engine != proxy.Portable {
		for i := range configs {
			configs[i].Engine = [...]proxy.Kind{proxy.Ring, proxy.Ring, proxy.Epoll, proxy.Epoll}[i%4]
		}
	}
	return newNodesOf(t, configs...)
}

// newNodesOf is newNodes for proxies that differ.
func newNodesOf(t *testing.T, configs ...proxy.Config) (nodes []*node) {
	t.Helper()
	for _, cfg := range configs {
		nodes = append(nodes, newNode(t, cfg))
	}
	t.Cleanup(func() { // all of them, before any looks what is left
		for _, n := range nodes {
			n.end()
		}
	})
	return nodes
}

// liveConfig is the configuration of an engine that passes on everything.
func liveConfig() proxy.Config {
	return suite{proxy.Epoll}.config()
}

// onEachEngine runs a test that holds for listeners alone as well.
func onEachEngine(t *testing.T, test func(t *testing.T, cfg proxy.Config)) {
	for _, kind := range []proxy.Kind{proxy.Portable, proxy.Epoll, proxy.Ring} {
		t.Run(kind.String(), func(t *testing.T) { test(t, suite{kind}.config()) })
	}
}

// passed returns an item as it arrives in another process: with descriptors of its own, and a body that lasts until the next item.
func passed(t testing.TB, item takeover.Item, body *[]byte) takeover.Item {
	t.Helper()
	clear(*body)
	*body = append((*body)[:0], item.Body...)
	copied := takeover.Item{Kind: item.Kind, Body: *body}
	for _, fd := range item.Descriptors {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Errorf("descriptor %d of kind %d: %v", fd, item.Kind, err)
		}
		copied.Descriptors = append(copied.Descriptors, own)
	}
	return copied
}

// allPassed is passed for a sequence of items.
func allPassed(t testing.TB, items iter.Seq2[takeover.Item, error]) iter.Seq2[takeover.Item, error] {
	return func(yield func(takeover.Item, error) bool) {
		var body []byte
		for item, err := range items {
			if err != nil {
				yield(takeover.Item{}, err)
				return
			}
			if !yield(passed(t, item, &body), nil) {
				return
			}
		}
	}
}

// giveListeners gives the listeners of a node to its successor, with which that opens its ports.
func (n *node) giveListeners(next *node, registry ...change) (live bool) {
	n.t.Helper()
	items, err := n.Listeners()
	if err != nil {
		n.t.Fatal(err)
	}
	var copies []takeover.Item
	for _, item := range items {
		copies = append(copies, passed(n.t, item, new([]byte)))
	}
	if live, err = next.AdoptListeners(copies); err != nil {
		n.t.Fatal(err)
	}
	next.apply(registry...)
	return live
}

// lendTo lends all that a node can lend to its successor.
func (n *node) lendTo(next *node) {
	n.t.Helper()
	for more := true; more; {
		var err error
		if more, err = n.Lend(true, func(items []takeover.Item) error {
			return next.Borrow(allPassed(n.t, func(yield func(takeover.Item, error) bool) {
				for _, item := range items {
					if !yield(item, nil) {
						return
					}
				}
			}))
		}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// freeze returns the connections of a node.
func (n *node) freeze() iter.Seq2[takeover.Item, error] {
	n.t.Helper()
	items, err := n.Freeze(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return allPassed(n.t, items)
}

// passTo has a successor take over all that a node carries, and ends the node.
func (n *node) passTo(next *node, registry ...change) {
	n.t.Helper()
	n.passWith(next, func() { n.lendTo(next) }, registry...)
}

// passWith is passTo, with something else in the place of lending.
func (n *node) passWith(next *node, lend func(), registry ...change) {
	n.t.Helper()
	if !n.giveListeners(next, registry...) {
		n.t.Fatal("the successor cannot adopt connections")
	}
	lend()
	if err := next.Adopt(n.freeze()); err != nil {
		n.t.Fatal(err)
	}
	next.Serve()
	n.Release()
	n.end()
}
