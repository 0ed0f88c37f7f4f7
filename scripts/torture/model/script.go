package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A Script is what the client and the endpoint of one connection do. The zero value is two sides that finish at once.
type Script struct {
	Service  Service
	Client   Part
	Endpoint Part
}

// A Service is the kind of service that a connection belongs to.
type Service uint8

// The kinds. Services with a header have an endpoint that refuses before one that answers, so that each client fails over.
const (
	Plain       Service = iota
	SpeaksFirst         // the endpoint sends before it has received anything
	HeaderV1            // each connection begins with a PROXY header of version 1
	HeaderV2            // or of version 2

	NumServices
)

// String gives the name of the service.
func (s Service) String() string {
	return [NumServices]string{"plain", "speaks-first", "header-v1", "header-v2"}[s]
}

// A Part is what one side does: it sends, receives until the other side has ended, and ends.
type Part struct {
	Bytes  int           // that it sends, behind the greeting
	Chunk  int           // most bytes of one write
	Pause  time.Duration // most time between two writes; 0: it writes without pauses
	Slow   time.Duration // pause before each read
	Late   time.Duration // pause before the first one
	Buffer int           // bytes of its kernel's receive buffer; 0: the default
	End    End
	At     int // offset of a reset, with the greeting, which an endpoint sends and receives in any case
}

// An End is how a side ends.
type End uint8

// The ends.
const (
	Finish       End = iota // it sends FIN behind its last byte, and goes on receiving
	FinishLast              // it sends FIN once it has received the end of the other side
	Leave                   // it closes its connection behind its last byte, whatever is still to be received
	ResetSending            // it resets its connection when it has sent At bytes
	ResetReading            // it resets its connection when it has received At bytes
)

// String gives the end in words.
func (e End) String() string {
	return [...]string{"finish", "finish last", "leave", "reset sending", "reset reading"}[e]
}

// Greeting is how many bytes begin each stream: the number of the connection at its side.
const Greeting = 8

// Draw makes the script of a number. The same seed and number make the same script.
func Draw(seed, number uint64) Script {
	r := rand.New(rand.NewPCG(seed, number))
	s := Script{Service: Service(r.IntN(int(NumServices)))}
	s.Client, s.Endpoint = drawPart(r), drawPart(r)
	// A third of all connections end as most do. A third have one side that does not.
	switch r.IntN(3) {
	case 0:
		s.Client.End, s.Endpoint.End = s.Client.End%2, s.Endpoint.End%2
	case 1:
		if r.IntN(2) == 0 {
			s.Client.End %= 2
		} else {
			s.Endpoint.End %= 2
		}
	}
	if s.Client.End == FinishLast && s.Endpoint.End == FinishLast { // each would wait for the other
		s.Client.End = Finish
	}
	// What is read late is more than kernels hold, so that kube-proxy holds some, too.
	if s.Client.Late > 0 {
		s.Endpoint.Bytes, s.Endpoint.Chunk, s.Endpoint.Pause = 3<<20+r.IntN(4<<20), 1<<20, 0
	}
	if s.Endpoint.Late > 0 {
		s.Client.Bytes, s.Client.Chunk, s.Client.Pause = 3<<20+r.IntN(4<<20), 1<<20, 0
	}
	// A window of a few thousand bytes moves at every probe of the kernel only: some per second.
	if s.Client.Slow > 0 {
		s.Endpoint.Bytes = min(s.Endpoint.Bytes, 32<<10)
	}
	if s.Endpoint.Slow > 0 {
		s.Client.Bytes = min(s.Client.Bytes, 32<<10)
	}
	s.Client.At, s.Endpoint.At = s.Client.drawOffset(r, s.Endpoint), max(s.Endpoint.drawOffset(r, s.Client), Greeting)
	return s
}

func drawPart(r *rand.Rand) Part {
	p := Part{
		Bytes: oneOf(r, 0, 1+r.IntN(100), r.IntN(4<<10), r.IntN(64<<10), r.IntN(64<<10), r.IntN(1<<20)),
		Chunk: oneOf(r, 1+r.IntN(200), 1+r.IntN(4<<10), 1+r.IntN(64<<10), 1<<20),
		End:   End(r.IntN(5)),
	}
	if r.IntN(3) == 0 {
		p.Pause = time.Duration(r.IntN(int(20 * time.Millisecond)))
	}
	if r.IntN(4) == 0 {
		p.Slow, p.Buffer = time.Duration(r.IntN(int(10*time.Millisecond))), 4<<10
	}
	if p.Slow == 0 && r.IntN(20) == 0 {
		p.Late = time.Duration(r.IntN(int(time.Second)))
	}
	// Connections last for a second or so: small chunks and small buffers are for few bytes.
	if p.Pause > 0 {
		p.Chunk = max(p.Chunk, p.Bytes/50)
	} else {
		p.Chunk = max(p.Chunk, p.Bytes/500)
	}
	return p
}

// drawOffset chooses where a side resets, if it does: near the beginning, near the end, or between.
func (p Part) drawOffset(r *rand.Rand, other Part) int {
	most := Greeting
	switch p.End {
	case ResetSending:
		most += p.Bytes
	case ResetReading:
		most += other.Bytes
	default:
		return 0
	}
	return oneOf(r, r.IntN(min(most, 20)+1), most, r.IntN(most+1), r.IntN(most+1))
}

func oneOf(r *rand.Rand, values ...int) int { return values[r.IntN(len(values))] }

// String gives the script in words.
func (s Script) String() string {
	return fmt.Sprintf("service %v; client: %v; endpoint: %v", s.Service, s.Client, s.Endpoint)
}

// String gives the part in words.
func (p Part) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes in chunks up to %d", p.Bytes, p.Chunk)
	if p.Pause > 0 {
		fmt.Fprintf(&b, " with pauses up to %v", p.Pause)
	}
	if p.Late > 0 {
		fmt.Fprintf(&b, ", reads after %v", p.Late)
	}
	if p.Slow > 0 {
		fmt.Fprintf(&b, ", reads every %v into %d bytes", p.Slow, p.Buffer)
	}
	fmt.Fprintf(&b, ", %v", p.End)
	if p.End == ResetSending || p.End == ResetReading {
		fmt.Fprintf(&b, " at byte %d", p.At)
	}
	return b.String()
}
