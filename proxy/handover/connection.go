package handover

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// MaxUnsent bounds the bytes that a connection holds for one side. An engine that holds more cannot hand the connection over.
const MaxUnsent = 1 << 20

// A TCP is one TCP client and its endpoint. Its descriptors are the client's connection and then the endpoint's, or the first alone
// while an endpoint is being looked for: then the search begins again.
//
// One that is lent goes on in the predecessor. Its bytes and its end are of no use yet: they follow in a [Rest], unless it ends before.
type TCP struct {
	Service registry.PortKey
	Port    uint16     // that the client connected to
	At      netip.Addr // of the listener of the port; the zero Addr: the node
	Client  netip.AddrPort

	Endpoint registry.Addr // zero while one is being looked for
	Age      time.Duration // since the client was accepted
	Dialled  time.Duration // of that, until the endpoint was reached
	Attempts uint64        // endpoints that were tried

	Progress

	AwaitsHeader bool           // the client has still to say who it is, by a header that is yet to be read
	Via, Goal    netip.AddrPort // the proxy that the client came by, and where the client connected to; zero if it came itself
	TLVs         string         // what that proxy said beside the addresses, as logs have it
	Introduced   uint16         // bytes of the client's header, once it is read; 0: none, or they were not counted

	EndpointGone, ServiceGone time.Duration // how long ago the endpoint left its service, and the service its port; 0: they are there

	Lent uint64 // what a Rest knows it by; 0: it is not lent

	Removal registry.Removal // what the service said when the connection began
}

// A Progress is how far a connection has come. All else of a connection that has its endpoint does not change.
type Progress struct {
	Sent, Received      uint64 // bytes written to the endpoint, and to the client
	ToBackend, ToClient []byte // read from the other side, and not yet written
	End                 Teardown
	Header              uint16 // bytes at the begin of ToBackend that are the PROXY header, and do not count as sent
	Stays               bool   // at an endpoint whose checks fail: it began after they did
}

// A Rest is what has become of a connection that was lent. It has no descriptors: the successor has them.
type Rest struct {
	Lent uint64
	Progress
}

// A Teardown is how far a connection has come on the way to its end.
type Teardown struct {
	Client, Backend SideEnd
	Reason          string        // so far, as logs spell it; "" while nothing has ended
	Flushing        bool          // it ends once the surviving side has acknowledged all
	Delivered       uint64        // bytes that had arrived on both sides when it was last looked at
	TimeLeft        time.Duration // how long nothing may be delivered from now on, if Timed
	Timed           bool
}

// A SideEnd is what is known of the end of one side.
type SideEnd struct {
	Finished bool // nothing more is to be read from it
	FIN      bool // since it sent FIN
	Broken   bool // it was reset, or has vanished
	SawEPIPE bool // it was gone when it was written to, after its FIN
	Doubtful bool // SawEPIPE, or it was reset without a FIN
}

func (*TCP) kind() uint16 { return kindTCP }
func (t *TCP) descriptors() int {
	if t.Endpoint == (registry.Addr{}) {
		return 1
	}
	return 2
}

func (t *TCP) fields(c *codec) {
	c.portKey(&t.Service)
	c.uint16(&t.Port)
	c.addrPort(&t.Client)
	c.endpoint(&t.Endpoint)
	c.duration(&t.Age)
	c.duration(&t.Dialled)
	c.uint(&t.Attempts)
	t.Progress.fields(c)
	c.bool(&t.AwaitsHeader)
	c.addrPort(&t.Via)
	c.addrPort(&t.Goal)
	c.duration(&t.EndpointGone)
	c.duration(&t.ServiceGone)
	c.uint(&t.Lent)
	c.removal(&t.Removal)
	t.Progress.doubts(c)
	c.ip(&t.At)
	c.text(&t.TLVs)
	c.uint16(&t.Introduced)
	c.bool(&t.Stays)
}

func (p *Progress) fields(c *codec) {
	c.uint(&p.Sent)
	c.uint(&p.Received)
	c.bytes(&p.ToBackend)
	c.bytes(&p.ToClient)
	for _, s := range [...]*SideEnd{&p.End.Client, &p.End.Backend} {
		c.bool(&s.Finished)
		c.bool(&s.FIN)
		c.bool(&s.Broken)
		c.bool(&s.SawEPIPE)
	}
	c.text(&p.End.Reason)
	c.bool(&p.End.Flushing)
	c.uint(&p.End.Delivered)
	c.duration(&p.End.TimeLeft)
	c.bool(&p.End.Timed)
	c.uint16(&p.Header)
}

// doubts is fields that came later: each message has them after those that it had, and Stays after them.
func (p *Progress) doubts(c *codec) {
	c.bool(&p.End.Client.Doubtful)
	c.bool(&p.End.Backend.Doubtful)
}

func (*Rest) kind() uint16     { return kindRest }
func (*Rest) descriptors() int { return 0 }
func (r *Rest) fields(c *codec) {
	c.uint(&r.Lent)
	r.Progress.fields(c)
	r.Progress.doubts(c)
	c.bool(&r.Stays)
}

func (r *Rest) problem() error {
	if r.Lent == 0 {
		return errors.New("the rest of no connection")
	}
	return r.Progress.problem()
}

func (p *Progress) problem() error {
	switch {
	case max(len(p.ToBackend), len(p.ToClient)) > MaxUnsent:
		return fmt.Errorf("more than %d unsent bytes", MaxUnsent)
	case int(p.Header) > len(p.ToBackend):
		return errors.New("a header that is longer than what is unsent")
	}
	return nil
}

func (t *TCP) problem() error {
	if err := t.Progress.problem(); err != nil {
		return err
	}
	switch {
	case t.Endpoint == registry.Addr{} && len(t.ToClient) > 0:
		return errors.New("bytes of an endpoint, but no endpoint")
	case t.Endpoint == registry.Addr{} && t.Lent != 0:
		return errors.New("it is lent, but has no endpoint")
	case t.AwaitsHeader && t.Endpoint != registry.Addr{}:
		return errors.New("an endpoint, but the client is not known yet")
	}
	return client(t.Service, t.Port, t.Client, t.Age, t.Dialled, t.EndpointGone, t.ServiceGone)
}

// client returns what is wrong with what TCP connections and UDP sessions have in common.
func client(service registry.PortKey, port uint16, client netip.AddrPort, durations ...time.Duration) error {
	switch {
	case service.Name.Name == "":
		return errors.New("no service")
	case port == 0:
		return errors.New("no port")
	case !client.IsValid():
		return errors.New("no client")
	}
	for _, d := range durations {
		if d < 0 {
			return errors.New("negative duration")
		}
	}
	return nil
}

// A UDP is one UDP session. Its descriptor is the socket that is connected to the endpoint; there is none while an endpoint is being
// looked for: then the search begins again.
type UDP struct {
	Service registry.PortKey
	Port    uint16
	At      netip.Addr // as that of TCP
	Client  netip.AddrPort
	Local   sockopt.LocalAddr // that the client sent to

	Endpoint, Previous registry.Addr // the last that carried the session, and the one before; zero for none
	Visit              Visit         // at Endpoint
	Age, Dialled       time.Duration // as those of TCP
	Attempts           uint64
	Waiting            [][]byte // what the client has said while an endpoint is being looked for

	Talk

	Lent uint64 // what a UDPRest knows it by; 0: it is not lent

	Searching  time.Duration // since an endpoint is being looked for; 0: it is at one, or it is not said
	SaysHeader bool          // Header is what stands before each datagram to the endpoint, as the record was when the session began
	Header     []byte
}

// A Talk is what changes with each datagram of a session that stays with its endpoint.
type Talk struct {
	Silent              time.Duration // since either side has sent something
	Sent, Received      uint64
	Answered, Confirmed bool // the client was given a reply, and has sent again after it
	Unanswered, Kept    bool // the last datagram of the client has no reply yet, and Last is a copy of it
	Last                []byte
	Requests, Replies   uint64 // datagrams of the client and of the endpoint, where the service counts them
	Lost                uint32 // datagrams of the endpoint that the kernel had no room for, as far as they were counted; 0: none, or it is not said
}

// A UDPRest is the rest of a session that was lent and is still with the same endpoint. It has no descriptor: the successor has it.
type UDPRest struct {
	Lent              uint64
	Answered, Refused bool // as those of Visit
	Talk              Talk
}

// A Visit is the time that a session has spent with an endpoint.
type Visit struct {
	IsOn              bool // otherwise an endpoint is being looked for, and the rest is zero
	Age               time.Duration
	Answered, Refused bool
}

func (*UDP) kind() uint16 { return kindUDP }
func (u *UDP) descriptors() int {
	if u.Visit.IsOn {
		return 1
	}
	return 0
}

func (u *UDP) fields(c *codec) {
	c.portKey(&u.Service)
	c.uint16(&u.Port)
	c.addrPort(&u.Client)
	c.ip(&u.Local.Addr)
	c.uint32(&u.Local.Interface)
	c.endpoint(&u.Endpoint)
	c.endpoint(&u.Previous)
	c.bool(&u.Visit.IsOn)
	c.duration(&u.Visit.Age)
	c.bool(&u.Visit.Answered)
	c.bool(&u.Visit.Refused)
	c.duration(&u.Age)
	c.duration(&u.Dialled)
	c.duration(&u.Silent)
	c.uint(&u.Attempts)
	c.uint(&u.Sent)
	c.uint(&u.Received)
	c.bool(&u.Answered)
	c.bool(&u.Confirmed)
	list(c, &u.Waiting, func(c *codec, datagram *[]byte) { c.bytes(datagram) })
	c.bool(&u.Unanswered)
	c.bool(&u.Kept)
	c.bytes(&u.Last)
	c.uint(&u.Lent)
	c.uint(&u.Requests)
	c.uint(&u.Replies)
	c.ip(&u.At)
	c.uint32(&u.Lost)
	c.duration(&u.Searching)
	c.bool(&u.SaysHeader)
	c.bytes(&u.Header)
}

func (*UDPRest) kind() uint16     { return kindUDPRest }
func (*UDPRest) descriptors() int { return 0 }

func (r *UDPRest) fields(c *codec) {
	c.uint(&r.Lent)
	c.bool(&r.Answered)
	c.bool(&r.Refused)
	c.duration(&r.Talk.Silent)
	c.uint(&r.Talk.Sent)
	c.uint(&r.Talk.Received)
	c.bool(&r.Talk.Answered)
	c.bool(&r.Talk.Confirmed)
	c.bool(&r.Talk.Unanswered)
	c.bool(&r.Talk.Kept)
	c.bytes(&r.Talk.Last)
	c.uint(&r.Talk.Requests)
	c.uint(&r.Talk.Replies)
	c.uint32(&r.Talk.Lost)
}

func (r *UDPRest) problem() error {
	switch {
	case r.Lent == 0:
		return errors.New("the rest of no session")
	case r.Talk.Silent < 0:
		return errors.New("negative duration")
	}
	return nil
}

// maxHeader is more than a PROXY header has without what it says beside the addresses.
const maxHeader = 64

func (u *UDP) problem() error {
	if u.Lent != 0 && !u.Visit.IsOn {
		return errors.New("it is lent, but has no endpoint")
	}
	if u.Visit.IsOn && u.Endpoint == (registry.Addr{}) {
		return errors.New("a socket, but no endpoint")
	}
	if len(u.Header) > maxHeader {
		return fmt.Errorf("a header of more than %d bytes", maxHeader)
	}
	return client(u.Service, u.Port, u.Client, u.Age, u.Dialled, u.Silent, u.Visit.Age, u.Searching)
}
