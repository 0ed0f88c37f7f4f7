package portable

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
)

// A tcpSocket is one open TCP port of the portable engine.
//
//	accept ──▶ serve: reach an endpoint ──▶ relay: a pump for each direction
//	one goroutine    one goroutine for each client, and one more while it is relayed
type tcpSocket struct {
	engine   *Engine
	listener *net.TCPListener
	accept   func() (*net.TCPConn, error) // the listener's
	owner    *atomic.Pointer[engine.Claim]
	port     uint16
	queue    tcp.Queue // of the goroutine that accepts

	ctx  context.Context // ends when the socket is closed
	stop context.CancelFunc
}

// A udpSocket is the open UDP socket of one port. All its clients speak to this one socket, so one
// goroutine reads what all of them send, and it must not wait for any of them: it finds the
// session, has it send the datagram on, and reads the next. What comes back is the business of
// each session's own goroutine.
//
//	client ──▶ udpSocket.read ──▶ session.forward ──▶ udpBackend ──▶ endpoint
//	client ◀──────────────── session.carryReplies ◀── udpBackend ◀── endpoint
type udpSocket struct {
	udp.Port
	engine *Engine
	conn   *net.UDPConn
	queue  sockopt.UDPQueue

	ctx     context.Context // ends when the socket is closed
	cancel  context.CancelFunc
	closing sync.Once

	mu       sync.Mutex // guards the fields below
	sessions map[admit.SessionKey]*session
	running  map[*session]struct{} // those whose run has not returned, so also some that have ended
}

// ends reports whether a session cannot go on, and why.
func (u *udpSocket) ends(s *session) (why traffic.Reason, ends bool) {
	return u.Ends(&s.Session, u.ctx.Err() != nil)
}

// forget makes s unknown: the client's next datagram begins another. It is safe to repeat.
func (u *udpSocket) forget(s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sessions[s.Key] == s {
		delete(u.sessions, s.Key)
	}
}

// returned notes that nothing more will come of s, and frees a port that drains after its last session.
func (u *udpSocket) returned(s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.running, s)
	if len(u.running) == 0 && u.IsDraining() {
		u.engine.Work.Go(u.Close) // in another goroutine: Close takes mu, and waits for sessions that may have begun meanwhile
	}
}
