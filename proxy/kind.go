package proxy

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind is the choice of an engine.
type Kind uint8

// The engines. Each has its name below, and its constructor in newEngine.
const (
	Auto     Kind = iota // the first of the others that this system allows
	Ring                 // Linux 6.1: the same loops, whose small messages pass through io_uring
	Epoll                // Linux: event loops over bare sockets
	Portable             // plain Go, everywhere
)

var kindNames = [...]string{Auto: "auto", Ring: "ring", Epoll: "epoll", Portable: "portable"}

// KindNames lists what the flag -engine may be, auto last.
func KindNames() []string { return append(slices.Clone(kindNames[1:]), kindNames[Auto]) }

// String gives the kind as the flag -engine spells it.
func (k Kind) String() string { return kindNames[k] }

// ParseKind is the reverse of String.
func ParseKind(s string) (Kind, error) {
	if i := slices.Index(kindNames[:], s); i >= 0 {
		return Kind(i), nil
	}
	return Auto, fmt.Errorf("no such engine; there are %s", strings.Join(KindNames(), ", "))
}
