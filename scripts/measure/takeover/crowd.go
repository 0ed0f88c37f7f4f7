//go:build linux

package takeover

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Clients that come and go.
const (
	newcomers = 20                     // each asks again and again, on a connection of its own each time
	between   = 100 * time.Millisecond // from one answer to the next connection
	diallers  = 12                     // the same, at the service whose backend is slow to accept
	// patience is how long a client waits: for an answer, and for the end of its streams.
	patience = 30 * time.Second
)

// A crowd is clients and their backends. All its goroutines have ended when end has returned.
type crowd struct {
	bench *bench
	noUDP bool
	host  netip.Addr // of the proxy

	backends *backends
	held     []*connection
	faults   faults
	window   atomic.Int32 // the second that runs: even ones are calm, from 2 on, and odd ones have a take-over, from 3 on
	dialling atomic.Int32 // diallers that have no answer yet

	answered  atomic.Int64 // newcomers and diallers
	sessions  atomic.Int64 // that were held
	datagrams [2]atomic.Int64
	elsewhere atomic.Int64

	mu      sync.Mutex // guards longest
	longest [][]time.Duration

	cancel context.CancelFunc
	work   sync.WaitGroup // of the clients
}

func newCrowd(b *bench, noUDP bool) *crowd {
	l := &crowd{bench: b, noUDP: noUDP, cancel: func() {}}
	l.window.Store(1)
	for i := range kinds {
		for range kinds[i].countOf(b.connections) {
			id := uint32(len(l.held))
			l.held = append(l.held, &connection{id: id, kind: &kinds[i],
				up: stream{start: int(id) * 7919}, down: stream{start: int(id)*7919 + 4001}})
		}
	}
	return l
}

// begin opens the backends and connects all clients.
func (l *crowd) begin(ctx context.Context, host netip.Addr) (err error) {
	defer try.Catch(&err)
	l.host = host
	ctx, l.cancel = context.WithCancel(ctx)
	l.backends = try.Get(openBackends(ctx, l))
	for _, c := range l.held {
		conn := try.Get(l.dial(l.bench.at.held))
		l.hold(ctx, c, conn)
	}
	for range newcomers {
		l.work.Go(func() { l.comeAndGo(ctx, "newcomer", l.bench.at.held, nil) })
	}
	for range diallers {
		l.work.Go(func() { l.comeAndGo(ctx, "dialler", l.bench.at.slow, &l.dialling) })
	}
	if !l.noUDP {
		for i := range l.bench.sessions {
			conn := try.Get(net.Dial("udp4", netip.AddrPortFrom(host, l.bench.at.udp).String()))
			l.work.Go(func() { l.ask(ctx, uint32(i), conn) })
			l.work.Go(func() { l.listen(ctx, conn) })
		}
	}
	return nil
}

func (l *crowd) dial(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: patience, KeepAlive: -1}
	conn, err := d.Dial("tcp4", netip.AddrPortFrom(l.host, port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// hold has a client play its part until the end.
func (l *crowd) hold(ctx context.Context, c *connection, conn *net.TCPConn) {
	if c.kind.steady {
		l.work.Go(func() {
			defer conn.Close()
			l.faults.noteHeld(c, "client", l.keepAsking(ctx, c, conn))
		})
		return
	}
	if c.kind.server.unread {
		_ = conn.SetReadBuffer(unreadBuffer) // best effort
	}
	if _, err := conn.Write(binary.LittleEndian.AppendUint32(nil, c.id)); err != nil {
		l.faults.noteHeld(c, "client", err)
	}
	l.play(ctx, &l.work, c, "client", conn, &c.up, c.kind.client, &c.down, c.kind.server)
}

// play writes one stream and reads the other, and closes the connection when both have ended.
func (l *crowd) play(ctx context.Context, work *sync.WaitGroup, c *connection, who string, conn *net.TCPConn, out *stream, says part, in *stream, hears part) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(patience)) }) // fails if it is closed
	var both sync.WaitGroup
	both.Go(func() { l.faults.noteHeld(c, who, out.write(ctx, conn, says)) })
	both.Go(func() { l.faults.noteHeld(c, who, in.read(ctx, conn, hears)) })
	work.Go(func() {
		both.Wait()
		stop()
		conn.Close()
	})
}

// question is what a client asks that wants its question back.
const question = 32

// keepAsking makes round trips, and keeps the longest of each window.
func (l *crowd) keepAsking(ctx context.Context, c *connection, conn *net.TCPConn) error {
	longest := make([]time.Duration, 2*l.bench.times+4)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.longest = append(l.longest, longest)
	}()
	if _, err := conn.Write(binary.LittleEndian.AppendUint32(nil, echoes)); err != nil {
		return err
	}
	for {
		if pause(ctx, 20*time.Millisecond) != nil {
			return conn.CloseWrite()
		}
		window := l.window.Load()
		began := time.Now()
		if err := c.up.roundTrip(conn); err != nil {
			return err
		}
		took := time.Since(began)
		// One that was begun in one window and answered in the next belongs to both.
		for _, w := range []int32{window, l.window.Load()} {
			longest[w] = max(longest[w], took)
		}
	}
}

// roundTrip says some bytes of the stream and wants them back.
func (s *stream) roundTrip(conn *net.TCPConn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := s.say(conn, question); err != nil {
		return err
	}
	buf := make([]byte, question)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	if want := s.expect(s.received, question); !slices.Equal(buf, want) {
		return fmt.Errorf("%w in an answer", errWrongBytes)
	}
	s.received += question
	return nil
}

// comeAndGo connects, makes a round trip, says good-bye, and begins again.
func (l *crowd) comeAndGo(ctx context.Context, who string, port uint16, waiting *atomic.Int32) {
	for pause(ctx, between) == nil {
		if waiting != nil {
			waiting.Add(1)
		}
		err := l.visit(port)
		if waiting != nil {
			waiting.Add(-1)
		}
		if l.faults.note(who, err); err == nil {
			l.answered.Add(1)
		}
	}
}

func (l *crowd) visit(port uint16) (err error) {
	defer try.Catch(&err)
	conn := try.Get(l.dial(port))
	defer conn.Close()
	_, err = conn.Write(binary.LittleEndian.AppendUint32(nil, echoes))
	try.Do(err)
	try.Do(new(stream).roundTrip(conn))
	try.Do(conn.CloseWrite())
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return err
	}
	return nil
}

// ask sends datagrams of one session.
func (l *crowd) ask(ctx context.Context, id uint32, conn net.Conn) {
	for number := uint32(0); pause(ctx, 500*time.Millisecond) == nil; number++ {
		datagram := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, id), number)
		if _, err := conn.Write(datagram); err != nil {
			if ctx.Err() == nil {
				l.faults.note("UDP session", err)
			}
			continue
		}
		l.datagrams[0].Add(1)
	}
}

// A session is what its client knows of one: who answers it, and until when.
type session struct {
	by    string // the endpoint, and the port that it saw the proxy at
	moved bool   // another one has answered
	last  int32  // window of the latest answer
}

// answered notes an answer. It reports whether another one has answered before.
func (s *session) answered(by string, window int32) (other bool) {
	other = s.by != "" && by != s.by
	s.by, s.moved, s.last = by, s.moved || other, window
	return other
}

// heldUntil reports whether the session still has answers in the last window, all of them by the same.
func (s *session) heldUntil(last int32) bool { return s.by != "" && !s.moved && s.last == last }

// lastAnswers is how long answers may be on their way once nobody asks any more.
const lastAnswers = time.Second

// listen compares who answers a session.
func (l *crowd) listen(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now().Add(lastAnswers)) })() // fails if it is closed
	var s session
	defer func() {
		if s.heldUntil(l.window.Load()) {
			l.sessions.Add(1)
		}
	}()
	for buf := make([]byte, 100); ; {
		n, err := conn.Read(buf)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			l.faults.note("UDP session", err)
			continue
		}
		if s.answered(string(buf[min(8, n):n]), l.window.Load()) {
			l.elsewhere.Add(1)
		}
		l.datagrams[1].Add(1)
	}
}

// end has all clients finish, and waits for them. It may be called again, and after a begin that failed.
func (l *crowd) end() {
	l.cancel()
	l.work.Wait()
	if l.backends != nil {
		l.backends.close()
	}
}

// sample is what was found out of a subject, once the load has ended.
func (l *crowd) sample(name string) measure.Sample {
	s := measure.Sample{Values: map[string]float64{"newcomers": float64(l.answered.Load())}}
	held, checked := 0, int64(0)
	for _, c := range l.held {
		whole := true
		for _, stream := range []*stream{&c.up, &c.down} {
			checked += stream.received
			if stream.received != stream.sent {
				l.faults.noteHeld(c, "a direction", fmt.Errorf("%w: %d bytes of %d", errShort, stream.received, stream.sent))
				whole = false
			}
		}
		if whole {
			held++
		}
	}
	s.Values["held"], s.Values["checked"] = float64(held), float64(checked)
	if !l.noUDP {
		s.Values["sessions"], s.Values["elsewhere"] = float64(l.sessions.Load()), float64(l.elsewhere.Load())
		s.Values["datagrams"] = float64(l.datagrams[1].Load())
		s.Values["lost"] = float64(l.datagrams[0].Load() - l.datagrams[1].Load())
	}
	for _, sort := range []string{"refused", "reset", "wrong", "missing", "late"} {
		n := l.faults.count[sort]
		if s.Values[sort] = float64(n); n > 0 {
			fmt.Fprintf(os.Stderr, "%s: %s, the first of %d: %s\n", name, sort, n, l.faults.first[sort])
		}
	}
	var waits [2][]float64 // of calm seconds, and of take-overs
	for _, of := range l.longest {
		for w := 2; w < 2+2*l.bench.times; w++ {
			if of[w] > 0 { // else it was cut off before
				waits[w%2] = append(waits[w%2], of[w].Seconds())
			}
		}
	}
	for i, name := range []string{"calm", "pause"} {
		sorted := slices.Sorted(slices.Values(waits[i]))
		if n := len(sorted); n > 0 {
			s.Values[name+"50"], s.Values[name+"99"], s.Values[name+"-worst"] = sorted[n/2], sorted[n*99/100], sorted[n-1]
		}
	}
	return s
}
