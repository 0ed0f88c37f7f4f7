// Package crowd bounds the clients of an HTTP server, such that those who wait without being served make room for newcomers.
package crowd

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
)

// A Listener is one whose clients are the crowd: those of one listener, or of several, of which there is only a limited number at a time. When a new client
// finds no room, the source with the most connections loses one: the one that has waited longest without being
// served. So a source that connects as fast as it can takes the room of its own connections only, and a probe
// from elsewhere keeps its place. A client whose answer is being made is not closed; if no other can make room,
// the new client is refused. Each new client costs one pass over those that there are.
//
// It is the listener that the server accepts from.
type Listener struct {
	net.Listener
	*crowd
}

// A crowd is the clients of a listener, or of several.
type crowd struct {
	room     int
	failures lograte.Limiter[struct{}] // lines about clients that cannot be accepted

	mu      sync.Mutex               // guards the fields below, and busy and place of each client
	clients *list.List               // of *Client, longest waiting first
	sources map[netip.Prefix]*source // of the clients

	left chan struct{} // capacity 1: a full channel means that a client has left since it was last read
}

// A Client is one connection.
type Client struct {
	net.Conn
	crowd  *crowd
	source *source
	busy   bool          // its answer is being made
	place  *list.Element // nil once it has left
}

// A source is where some clients connect from.
type source struct {
	prefix      netip.Prefix
	connections int
}

// sourceOf returns what counts as one source: an IPv4 address, or an IPv6 network of 64 bits, since one machine
// may use all addresses of that.
func sourceOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	source, _ := addr.Prefix(min(addr.BitLen(), 64)) // of 32 or 64 bits, which every address has
	return source
}

// Listen is [net.Listen] without keepalive: a server of a crowd limits each wait for a client, and keepalive costs four system calls a
// client. With them the kernel's queue overflows sooner when many connect at once, and a probe that it drops there is sent again a second later.
func Listen(network, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1}
	return config.Listen(context.Background(), network, address)
}

// New returns a listener that has room for so many clients at a time.
func New(l net.Listener, room int) *Listener {
	return &Listener{l, &crowd{room: room, clients: list.New(), sources: make(map[netip.Prefix]*source), left: make(chan struct{}, 1)}}
}

// Beside returns another listener, whose clients and those of w are one crowd.
func (w *Listener) Beside(l net.Listener) *Listener { return &Listener{l, w.crowd} }

// acceptAgain is how long after an error the next client is accepted.
const acceptAgain = 100 * time.Millisecond

// Accept implements [net.Listener]. It fails only when the listener is closed. Package http would give the listener up after an error
// that it takes for a lasting one, such as a want of memory.
func (w *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := w.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			if note, ok := w.failures.Allow(struct{}{}); ok {
				glog.Warningf("an operator or a load balancer cannot be accepted: %v%s", err, note)
			}
			time.Sleep(acceptAgain)
			continue
		}
		if c := w.Admit(conn); c != nil {
			return c, nil
		}
		conn.Close()
	}
}

// Admit adds a client, and closes another one if there is no room. It returns nil if the new client is refused.
func (w *crowd) Admit(conn net.Conn) *Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Client{Conn: conn, crowd: w}
	c.joinLocked(sourceOf(conn))
	if w.clients.Len() > w.room {
		victim := w.victimLocked(c)
		w.leaveLocked(victim)
		if victim == c {
			return nil
		}
		victim.Conn.Close() // the server notices
	}
	return c
}

func (c *Client) joinLocked(from netip.Prefix) {
	c.source = c.crowd.sources[from]
	if c.source == nil {
		c.source = &source{prefix: from}
		c.crowd.sources[from] = c.source
	}
	c.source.connections++
	c.place = c.crowd.clients.PushBack(c)
}

// victimLocked returns the client that makes room for the newcomer: itself, if its source has more connections with it than any that could
// lose one.
func (w *crowd) victimLocked(newcomer *Client) *Client {
	victim, most := newcomer, newcomer.source.connections-1
	for e := w.clients.Front(); e != newcomer.place; e = e.Next() {
		if c := e.Value.(*Client); !c.busy && c.source.connections > most {
			victim, most = c, c.source.connections
		}
	}
	return victim
}

func (w *crowd) leaveLocked(c *Client) {
	if c.place != nil {
		w.clients.Remove(c.place)
		c.place = nil
		if c.source.connections--; c.source.connections == 0 {
			delete(w.sources, c.source.prefix)
		}
		select {
		case w.left <- struct{}{}:
		default:
		}
	}
}

// Leave waits until all clients have left, or ctx ends.
func (w *crowd) Leave(ctx context.Context) {
	for {
		w.mu.Lock()
		n := w.clients.Len()
		w.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-w.left:
		case <-ctx.Done():
			return
		}
	}
}

// Close implements [net.Conn].
func (c *Client) Close() error {
	c.crowd.mu.Lock()
	c.crowd.leaveLocked(c)
	c.crowd.mu.Unlock()
	return c.Conn.Close()
}

type clientKey struct{}

// Remember lets handlers know whose request it is.
func (w *Listener) Remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, conn)
}

// Handler is next, and notes whose answer is being made.
func (w *Listener) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c := ClientOf(r)
		c.Answering(true)
		defer c.Answering(false)
		next.ServeHTTP(rw, r)
		_ = http.NewResponseController(rw).Flush() // while it counts as busy; an error is the client's concern
	})
}

// ClientOf returns the connection that a request came by; nil in tests without one.
func ClientOf(r *http.Request) *Client {
	c, _ := r.Context().Value(clientKey{}).(*Client)
	return c
}

// Answering notes whether the client's answer is being made. When it has been, its wait begins anew.
func (c *Client) Answering(busy bool) {
	if c == nil {
		return
	}
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if c.busy = busy; !busy && c.place != nil {
		c.crowd.clients.MoveToBack(c.place)
	}
}
