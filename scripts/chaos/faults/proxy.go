package faults

import (
	"fmt"
	"net"
	"sync"
	"time"

	"kubeproxy/internal/process"
)

// A Proxy is the TCP path to one target, through one address of its own. Any goroutine may call its methods.
type Proxy struct {
	Addr string // host and port; the same for as long as the Proxy exists
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	listener *net.TCPListener
	target   string
	mode     Mode // of new connections
	delay    time.Duration
	conns    map[*conn]struct{}
	closed   bool
}

// NewProxy opens a path to target, a host and port. Its own port lies between low and high.
func NewProxy(target string, low, high uint16) (*Proxy, error) {
	port, err := process.FreePorts(low, high, 1)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: fmt.Sprintf("127.0.0.1:%d", port), target: target, conns: make(map[*conn]struct{})}
	return p, p.listen()
}

// A ConnChoice selects connections.
type ConnChoice func(*conn) bool

// EveryConn selects every connection, WatchConns those that carry a watch of etcd, and OtherConns the rest. LossyConns selects those that have lost
// bytes: such a connection exists, and may even carry bytes one way, until one end gives it up.
func EveryConn(*conn) bool    { return true }
func WatchConns(c *conn) bool { return c.watches.Load() }
func OtherConns(c *conn) bool { return !c.watches.Load() }
func LossyConns(c *conn) bool { return c.toTarget.isLossy() || c.toClient.isLossy() }

// Reset resets the chosen connections, and returns how many there were. NewProxy ones pass.
func (p *Proxy) Reset(chosen ConnChoice) (n int) {
	return p.each(chosen, (*conn).reset)
}

// Set changes the mode of the chosen connections that are open, and returns how many there are.
func (p *Proxy) Set(chosen ConnChoice, m Mode) (n int) {
	return p.each(chosen, func(c *conn) { c.set(m) })
}

// SetNew changes the mode of connections that are opened from now on.
func (p *Proxy) SetNew(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
}

// Slow delays each read from the target by d.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
	for c := range p.conns {
		c.delay.Store(int64(d))
	}
}

// Redirect sends new connections to another target, and resets those that are open.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Reset(EveryConn)
}

// Refuse resets every connection and closes the address.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener != nil {
		_ = listener.Close() // ends accept
	}
	p.Reset(EveryConn)
}

// Restore opens the address and forwards new connections at once. Connections that were held continue; those that have lost bytes
// stay silent.
func (p *Proxy) Restore() error {
	p.SetNew(Mode{})
	p.Slow(0)
	p.each(EveryConn, (*conn).release)
	return p.listen()
}

// Close ends every connection, and waits until no goroutine of the Proxy is left. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.wg.Wait()
}

// Count returns how many of the chosen connections are open.
func (p *Proxy) Count(chosen ConnChoice) int { return p.each(chosen, func(*conn) {}) }

// Clients returns the addresses of the clients of the chosen connections.
func (p *Proxy) Clients(chosen ConnChoice) (addrs []string) {
	p.each(chosen, func(c *conn) { addrs = append(addrs, c.client.RemoteAddr().String()) })
	return addrs
}

func (p *Proxy) each(chosen ConnChoice, do func(*conn)) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if chosen(c) {
			do(c)
			n++
		}
	}
	return n
}

// listen opens the address unless it is open.
func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	p.listener = listener.(*net.TCPListener)
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // refused or closed
			}
			p.wg.Go(func() { p.carry(client.(*net.TCPConn)) })
		}
	})
	return nil
}

// carry carries one connection until both ends have ended it.
func (p *Proxy) carry(client *net.TCPConn) {
	p.mu.Lock()
	to, mode, delay := p.target, p.mode, p.delay
	p.mu.Unlock()
	target, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close() // refused, as the target did
		return
	}
	c := newConn(client, target.(*net.TCPConn), mode)
	c.delay.Store(int64(delay))
	p.mu.Lock()
	// What has changed meanwhile counts for this one too.
	if p.listener == nil || p.target != to {
		c.reset()
	}
	if p.mode != mode {
		c.set(p.mode)
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()

	c.carry()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}
