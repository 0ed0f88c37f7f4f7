package operators

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// A crowd is the clients of one listener, of whom there is only a limited number at a time. A new client
// takes the place of the one that has been waiting longest without being answered just now: one that is
// slow to ask, or keeps its connection for later. If all are being answered the new one is turned away.
//
// It is the listener that the server accepts from.
type crowd struct {
	net.Listener
	room int

	mu      sync.Mutex // guards the fields below, and busy and place of each client
	clients *list.List // of *client, longest waiting first
}

// A client is one connection.
type client struct {
	net.Conn
	crowd *crowd
	busy  bool          // it is being answered
	place *list.Element // nil once it has left
}

// roomFor says how many clients each listener may have: so many that both together leave most of the
// descriptors that the proxy keeps in reserve to others.
func roomFor(reserve int) int { return max(reserve/8, 2) }

func newCrowd(l net.Listener, room int) *crowd {
	return &crowd{Listener: l, room: room, clients: list.New()}
}

// Accept implements [net.Listener].
func (w *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := w.admit(conn); c != nil {
			return c, nil
		}
		conn.Close()
	}
}

// admit lets a client in, and another one out if there is no room. It returns nil if nobody can leave.
func (w *crowd) admit(conn net.Conn) *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clients.Len() >= w.room && !w.turnOutLocked() {
		return nil
	}
	c := &client{Conn: conn, crowd: w}
	c.place = w.clients.PushBack(c)
	return c
}

func (w *crowd) turnOutLocked() bool {
	for e := w.clients.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*client); !c.busy {
			w.leaveLocked(c)
			c.Conn.Close() // the server finds out by itself
			return true
		}
	}
	return false
}

func (w *crowd) leaveLocked(c *client) {
	if c.place != nil {
		w.clients.Remove(c.place)
		c.place = nil
	}
}

// Close implements [net.Conn].
func (c *client) Close() error {
	c.crowd.mu.Lock()
	c.crowd.leaveLocked(c)
	c.crowd.mu.Unlock()
	return c.Conn.Close()
}

type clientKey struct{}

// remember lets handlers know whose request it is.
func (w *crowd) remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, conn)
}

// handler is next, and makes known who is being answered.
func (w *crowd) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(clientKey{}).(*client)
		c.answering(true)
		defer c.answering(false)
		next.ServeHTTP(rw, r)
		_ = http.NewResponseController(rw).Flush() // while it counts as busy; an error is the client's concern
	})
}

// answering notes whether the client is being answered. Once it was, its wait begins anew.
func (c *client) answering(busy bool) {
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if c.busy = busy; !busy && c.place != nil {
		c.crowd.clients.MoveToBack(c.place)
	}
}
