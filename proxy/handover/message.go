package handover

import "errors"

// Version is the version of all messages. It changes when an earlier release would misunderstand them.
const Version = 1

// The kinds of messages, as items bear them.
const (
	kindGreeting uint16 = iota + 1
	kindListener
	kindUDPPort
	kindRotation
	kindAffinities
	kindTCP
	kindUDP
	kindRest
	kindUDPRest
)

// A Message is one of the types of this package.
type Message interface {
	kind() uint16

	// descriptors returns how many descriptors go with the message.
	descriptors() int

	// fields describes the message to c, which reads or writes it.
	fields(c *codec)

	// problem returns what no predecessor would have written.
	problem() error
}

// A Greeting is the first message: it says which version the others have.
type Greeting struct {
	Version uint64
	Live    bool // the predecessor gives away live connections too
}

func (*Greeting) kind() uint16 { return kindGreeting }

func (*Greeting) descriptors() int { return 0 }

func (g *Greeting) fields(c *codec) { c.uint(&g.Version); c.bool(&g.Live) }

func (g *Greeting) problem() error {
	if g.Version == 0 {
		return errors.New("no version")
	}
	return nil
}
