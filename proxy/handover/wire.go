package handover

import (
	"fmt"

	"kubeproxy/internal/takeover"
)

// newMessage returns an empty message of a kind; nil when there is no such kind.
func newMessage(kind uint16) Message {
	switch kind {
	case kindGreeting:
		return new(Greeting)
	case kindListener:
		return new(Listener)
	case kindUDPPort:
		return new(UDPPort)
	case kindRotation:
		return new(Rotation)
	case kindAffinities:
		return new(Affinities)
	case kindTCP:
		return new(TCP)
	case kindUDP:
		return new(UDP)
	case kindRest:
		return new(Rest)
	case kindUDPRest:
		return new(UDPRest)
	}
	return nil
}

// Encode makes the item of a message and its descriptors. It reads r only.
func Encode(r Message, descriptors ...int) takeover.Item {
	c := codec{b: make([]byte, 0, 128)}
	r.fields(&c)
	return takeover.Item{Kind: r.kind(), Body: c.b, Descriptors: descriptors}
}

// Decode reads the message of an item. Its byte slices are parts of the item's body. The descriptors stay the caller's, also when
// it fails.
func Decode(item takeover.Item) (Message, error) {
	r := newMessage(item.Kind)
	if r == nil {
		return nil, fmt.Errorf("unknown kind %d of message", item.Kind)
	}
	c := codec{b: item.Body, decodes: true}
	if r.fields(&c); c.err == nil {
		c.err = r.problem()
	}
	if n, want := len(item.Descriptors), r.descriptors(); c.err == nil && n != want {
		c.err = fmt.Errorf("%d descriptors; want %d", n, want)
	}
	if c.err != nil {
		return nil, fmt.Errorf("%T message: %w", r, c.err)
	}
	return r, nil
}
