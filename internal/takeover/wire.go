package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// protocol is the version of everything in this file. A peer of another version is refused.
const protocol = 1

// magic begins a hello and an offer, in every version.
const magic = "kube-proxy takeover\n"

// Limits of the wire.
const (
	maxPayload     = 64 << 10
	maxBody        = 2 << 20
	maxDescriptors = 253 // in a message: SCM_MAX_FD of Linux
	maxReason      = 1 << 10
)

// A frameType says what a frame is for.
type frameType byte

const (
	frameHello   frameType = iota + 1 // successor: magic, protocol, features
	frameOffer                        // predecessor: magic, protocol, number of open descriptors, features if it was told some
	frameRefusal                      // either: why it will not go on, as text
	frameAccept                       // successor: it has room
	frameItems                        // predecessor: a part of the stream of items
	frameEnd                          // predecessor: what the stream has to add up to
	frameOpened                       // successor: its services are open, and it wants the rest
	frameServing                      // successor: the word
	framePing                         // successor: is anybody there?
	framePong                         // predecessor: yes, and which sources it has not read
	frameTaken                        // successor: it has what was lent so far
)

func (t frameType) String() string {
	names := [...]string{"nothing", "hello", "offer", "refusal", "accept", "items", "end", "opened", "serving", "ping", "pong", "taken"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("frame %d", byte(t))
}

// Features are what a process can do beyond the first release that spoke this version. That release says nothing about them: it
// ignores what follows the version in a hello, and takes no offer that is longer than its own.
type features uint16

// What both processes can do is done.
const (
	lends         features = 1 << iota // connections go over before the freeze
	lendsSessions                      // and so do UDP sessions
	allFeatures   = lends | lendsSessions
)

// An offer is what the predecessor says first.
type offer struct {
	descriptors uint32   // that it has open
	features    features // that the successor has, too
}

func greeting() []byte { return binary.BigEndian.AppendUint16([]byte(magic), protocol) }

// hello is the greeting of a successor.
func (f features) hello() []byte { return binary.BigEndian.AppendUint16(greeting(), uint16(f)) }

// parseHello checks a hello, and returns what the successor can do.
func parseHello(payload []byte) (features, error) {
	rest, err := parseGreeting(payload)
	if err != nil || len(rest) < 2 {
		return 0, err
	}
	return features(binary.BigEndian.Uint16(rest)), nil
}

// parseGreeting checks the head of a hello or an offer, and returns what follows.
func parseGreeting(payload []byte) ([]byte, error) {
	if len(payload) < len(magic)+2 || string(payload[:len(magic)]) != magic {
		return nil, errors.New("it is no kube-proxy that takes over")
	}
	payload = payload[len(magic):]
	if v := binary.BigEndian.Uint16(payload); v != protocol {
		return nil, fmt.Errorf("it speaks version %d of the take-over, and this process version %d", v, protocol)
	}
	return payload[2:], nil
}

func (o offer) payload() []byte {
	payload := binary.BigEndian.AppendUint32(greeting(), o.descriptors)
	if o.features != 0 {
		payload = binary.BigEndian.AppendUint16(payload, uint16(o.features))
	}
	return payload
}

func parseOffer(payload []byte) (offer, error) {
	rest, err := parseGreeting(payload)
	if err != nil {
		return offer{}, err
	}
	switch len(rest) {
	case 4:
		return offer{descriptors: binary.BigEndian.Uint32(rest)}, nil
	case 6:
		if f := features(binary.BigEndian.Uint16(rest[4:])); f != 0 {
			return offer{binary.BigEndian.Uint32(rest), f}, nil
		}
	}
	return offer{}, errors.New("an offer of the wrong length")
}

// An end is what a stream of items adds up to.
type end struct {
	items, descriptors, checksum uint32
}

// add counts a frame.
func (e *end) add(payload []byte, descriptors int) {
	e.descriptors += uint32(descriptors)
	e.checksum = crc32.Update(e.checksum, castagnoli, payload)
}

func (e end) payload() []byte {
	b := binary.BigEndian.AppendUint32(nil, e.items)
	b = binary.BigEndian.AppendUint32(b, e.descriptors)
	return binary.BigEndian.AppendUint32(b, e.checksum)
}

func parseEnd(payload []byte) (end, error) {
	if len(payload) != 12 {
		return end{}, errors.New("an end of the wrong length")
	}
	return end{binary.BigEndian.Uint32(payload), binary.BigEndian.Uint32(payload[4:]), binary.BigEndian.Uint32(payload[8:])}, nil
}

// itemHeader is the length of what comes before each body: kind, number of descriptors, length of the body.
const itemHeader = 2 + 2 + 4

func appendItem(stream []byte, it Item) []byte {
	stream = binary.BigEndian.AppendUint16(stream, it.Kind)
	stream = binary.BigEndian.AppendUint16(stream, uint16(len(it.Descriptors)))
	stream = binary.BigEndian.AppendUint32(stream, uint32(len(it.Body)))
	return append(stream, it.Body...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A scanner finds items in a stream. What it holds is at most one item and one frame. The zero value begins a stream.
type scanner struct {
	pending     []byte // of the stream, not yet given out
	used        int    // of pending, by the item that was given out last
	descriptors []int  // owned, for the items to come
	seen        end
}

// feed adds a frame. The scanner owns its descriptors from then on.
func (s *scanner) feed(payload []byte, descriptors []int) {
	s.pending = append(s.pending[:copy(s.pending, s.pending[s.used:])], payload...)
	s.used = 0
	s.descriptors = append(s.descriptors, descriptors...)
	s.seen.add(payload, len(descriptors))
}

// next returns the next item that is complete; ok is false if there is none yet. The body is valid until the next call of feed.
func (s *scanner) next() (it Item, ok bool, err error) {
	rest := s.pending[s.used:]
	if len(rest) < itemHeader {
		return Item{}, false, nil
	}
	n, length := int(binary.BigEndian.Uint16(rest[2:])), binary.BigEndian.Uint32(rest[4:])
	if n > maxDescriptors || length > maxBody {
		return Item{}, false, fmt.Errorf("an item with %d descriptors and %d bytes", n, length)
	}
	if len(rest) < itemHeader+int(length) {
		return Item{}, false, nil
	}
	if len(s.descriptors) < n {
		return Item{}, false, fmt.Errorf("%d descriptors came, and the item has %d", len(s.descriptors), n)
	}
	it = Item{Kind: binary.BigEndian.Uint16(rest), Body: rest[itemHeader : itemHeader+length : itemHeader+length]}
	if n > 0 {
		it.Descriptors, s.descriptors = s.descriptors[:n:n], s.descriptors[n:]
	}
	s.used += itemHeader + int(length)
	s.seen.items++
	return it, true, nil
}

// finish compares the stream with what it has to add up to.
func (s *scanner) finish(want end) error {
	switch {
	case len(s.pending) > s.used:
		return errors.New("the last item is not complete")
	case s.seen != want || len(s.descriptors) > 0:
		return fmt.Errorf("%d items with %d descriptors came, checksum %08x; sent were %d with %d, checksum %08x",
			s.seen.items, s.seen.descriptors, s.seen.checksum, want.items, want.descriptors, want.checksum)
	}
	return nil
}
