//go:build linux

package fleet

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
)

// A canary is the service that is seen to change. Its endpoints are ours, in two sets, and each greets
// its clients with the name of its set. A change replaces the one set by the other, as when all pods of
// a service are replaced: the record is as long as any other.
type canary struct {
	key  string
	port int
	sets [2]struct {
		record    string
		listeners []net.Listener
	}
	now byte // the set in force
}

// newCanary listens at n endpoints for each of the sets.
func newCanary(port, n int) (*canary, error) {
	const name = "the-canary---"
	c := &canary{key: registry.EndpointsPrefix + name, port: port}
	for set := range c.sets {
		var addrs []netip.AddrPort
		for i := range n {
			host := netip.AddrFrom4([4]byte{127, 8, byte(i / 250), byte(1 + i%250)})
			l, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
			if err != nil {
				c.close()
				return nil, err
			}
			c.sets[set].listeners = append(c.sets[set].listeners, l)
			addrs = append(addrs, l.Addr().(*net.TCPAddr).AddrPort())
			go greet(l, byte(set))
		}
		c.sets[set].record = endpointsRecord(name, addrs)
	}
	return c, nil
}

// greet tells every client which set this is, and waits until it leaves.
func greet(l net.Listener, set byte) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		go func() {
			defer conn.Close()
			if _, err := conn.Write([]byte{set}); err == nil {
				_, _ = conn.Read(make([]byte, 1)) // clients send nothing: it returns at the end
			}
		}()
	}
}

func (c *canary) spec() (key, record string) {
	name := c.key[len(registry.EndpointsPrefix):]
	return registry.SpecsPrefix + name, specRecord(name, c.port)
}

func (c *canary) close() {
	for _, s := range c.sets {
		for _, l := range s.listeners {
			l.Close()
		}
	}
}

// A sighting is the greeting that a client of a node has got.
type sighting struct {
	node int
	set  byte
	at   time.Duration // since the machine has started
}

// A lookout is a client at each node. With -on_removal=close a node ends the connections to endpoints
// that were removed, so nobody has to ask again and again which endpoints are served: whoever is cut off
// connects anew, and is greeted by the new ones.
type lookout struct {
	seen chan sighting
	stop context.CancelFunc
	done sync.WaitGroup
}

func watchNodes(at []netip.AddrPort) *lookout {
	ctx, cancel := context.WithCancel(context.Background())
	w := &lookout{seen: make(chan sighting, 100*len(at)), stop: cancel}
	for node, addr := range at {
		w.done.Go(func() {
			for ctx.Err() == nil {
				w.visit(ctx, node, addr)
				select {
				case <-time.After(time.Millisecond): // if the node is not there, it comes
				case <-ctx.Done():
				}
			}
		})
	}
	return w
}

// visit connects to a node, and stays until it is cut off.
func (w *lookout) visit(ctx context.Context, node int, addr netip.AddrPort) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var greeting [1]byte
	if _, err := conn.Read(greeting[:]); err != nil {
		return
	}
	select {
	case w.seen <- sighting{node, greeting[0], measure.SinceBoot()}:
	case <-ctx.Done():
	}
	_, _ = conn.Read(greeting[:]) // nothing more is sent: it returns at the end
}

func (w *lookout) close() {
	w.stop()
	w.done.Wait()
}
