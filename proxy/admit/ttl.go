package admit

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// An answerTTL is the shortest TTL of the records that nameservers have answered one look-up with. Package net does not tell TTLs, so the
// answers are read on their way to it.
type answerTTL struct {
	mu    sync.Mutex // both families are asked at a time
	known bool
	ttl   time.Duration
}

// A ttlKey finds the answerTTL of a look-up in its context.
type ttlKey struct{}

// shortest returns the TTL; 0: none is known, as of a name in /etc/hosts, or of an answer that came over TCP.
func (t *answerTTL) shortest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ttl
}

// note takes a TTL into account.
func (t *answerTTL) note(ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known || ttl < t.ttl {
		t.known, t.ttl = true, ttl
	}
}

// read takes the records of a message into account. What cannot be read says nothing: package net judges whether it is an answer.
func (t *answerTTL) read(message []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(message); err != nil || !h.Response || p.SkipAllQuestions() != nil {
		return
	}
	for {
		record, err := p.AnswerHeader()
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		t.note(time.Duration(record.TTL) * time.Second)
	}
}

// nameservers asks the nameservers of the system, which it reaches by dial. Unlike that of package net, it leaves nothing behind when the
// context of a look-up ends: there the sockets stay open until the nameserver's time is up, five seconds, and are in no budget.
func nameservers(dial func(ctx context.Context, network, address string) (net.Conn, error)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		asked := &question{Conn: c}
		context.AfterFunc(ctx, asked.end)
		ttl, _ := ctx.Value(ttlKey{}).(*answerTTL) // nil: the caller does not ask for it
		if packets, ok := c.(net.PacketConn); ok { // package net asks so whether messages need a length before them
			return &answers{asked, packets, ttl}, nil
		}
		return asked, nil
	}}
}

// A question is a connection to a nameserver that waits for nothing once its look-up has ended.
type question struct {
	net.Conn
	mu    sync.Mutex
	ended bool // guarded by mu
}

// end has all that waits for the nameserver fail, now and later.
func (q *question) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	_ = q.Conn.SetDeadline(past) // it may be closed by then
}

// SetDeadline changes nothing once the look-up has ended: package net sets the nameserver's time after it has dialled, which may be later.
func (q *question) SetDeadline(t time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		t = past
	}
	return q.Conn.SetDeadline(t)
}

// Past is a deadline that has passed.
var past = time.Unix(0, 1)

// Answers is a socket of datagrams whose answers are read on their way.
type answers struct {
	*question
	packets net.PacketConn
	ttl     *answerTTL
}

// Read reads one message.
func (a *answers) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if err == nil && a.ttl != nil {
		a.ttl.read(b[:n])
	}
	return n, err
}

// ReadFrom makes it a socket of datagrams for package net, which only reads.
func (a *answers) ReadFrom(b []byte) (int, net.Addr, error) { return a.packets.ReadFrom(b) }

// WriteTo does so, too.
func (a *answers) WriteTo(b []byte, to net.Addr) (int, error) { return a.packets.WriteTo(b, to) }
