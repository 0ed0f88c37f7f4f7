package handover

import "errors"

// Version is the version of all records. It changes when an earlier release would misunderstand them.
const Version = 1

// The kinds of records, as items bear them.
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

// A Record is one of the types of this package.
type Record interface {
	kind() uint16

	// descriptors returns how many descriptors go with the record.
	descriptors() int

	// fields describes the record to c, which reads or writes it.
	fields(c *codec)

	// problem returns what no predecessor would have written.
	problem() error
}

// A Greeting is the first record: it says which version the others have.
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
