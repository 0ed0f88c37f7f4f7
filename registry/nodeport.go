package registry

import (
	"cmp"
	"fmt"
)

// A NodePort names what can be listened on: one port number of one protocol.
type NodePort struct {
	Protocol Protocol
	Number   uint16
}

// String names the port as the logs do.
func (id NodePort) String() string {
	return fmt.Sprintf("%s port %d", id.Protocol, id.Number)
}

// Compare orders ports by number, then by protocol.
func (id NodePort) Compare(other NodePort) int {
	return cmp.Or(cmp.Compare(id.Number, other.Number), cmp.Compare(id.Protocol, other.Protocol))
}
