package faults

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A conn is one connection through the proxy, with its two ends.
type conn struct {
	client, target     *net.TCPConn
	toTarget, toClient direction
	delay              atomic.Int64 // of each read from the target

	// A watch was opened on it. The etcd source opens a connection for each watch, and uses others for lists and probes. So a
	// fault of such a connection is a fault of the watch alone. Neither order nor age distinguishes them: with users, each
	// connection begins with a login.
	watches atomic.Bool
}

func newConn(client, target *net.TCPConn, m Mode) *conn {
	c := &conn{client: client, target: target}
	c.toTarget.init(m.toTarget)
	c.toClient.init(m.toClient)
	return c
}

func (c *conn) set(m Mode) {
	c.toTarget.set(m.toTarget)
	c.toClient.set(m.toClient)
}

// release forwards what is held.
func (c *conn) release() {
	c.toTarget.release()
	c.toClient.release()
}

// end closes both ends.
func (c *conn) end() {
	_ = c.client.Close()
	_ = c.target.Close()
	c.release()
}

// reset ends the connection with a reset to both ends.
func (c *conn) reset() {
	_ = c.client.SetLinger(0)
	_ = c.target.SetLinger(0)
	c.end()
}

// carry copies both directions until both have ended.
func (c *conn) carry() {
	requests, copied := io.Pipe()
	var pumps sync.WaitGroup
	pumps.Go(func() {
		readMethods(requests, func(method string) {
			if method == watchMethod {
				c.watches.Store(true)
			}
		})
		requests.Close() // the rest is not parsed
	})
	pumps.Go(func() {
		c.pump(c.target, c.client, &c.toTarget, &c.toClient, func(p []byte) {
			_, _ = copied.Write(p)   // it fails once the rest is not parsed
			_, _ = copied.Write(nil) // it returns at the next Read: all that was read before has been parsed
		})
		copied.Close()
	})
	pumps.Go(func() {
		c.pump(c.client, c.target, &c.toClient, &c.toTarget, func([]byte) { time.Sleep(time.Duration(c.delay.Load())) })
	})
	pumps.Wait()
}

// pump copies until either end has ended, and then ends both. A direction that discards bytes also discards the end of its source: then
// the other end waits.
func (c *conn) pump(dst, src *net.TCPConn, there, back *direction, seen func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		seen(buf[:n])
		switch forwards := there.forwards(); {
		case !forwards && err != nil:
			_ = src.Close()
			return
		case !forwards:
			continue
		}
		_, werr := dst.Write(buf[:n])
		switch {
		case err != nil:
			c.end()
			return
		case werr != nil && !back.forwards():
			there.set(discard)
		case werr != nil:
			c.end()
			return
		}
	}
}
