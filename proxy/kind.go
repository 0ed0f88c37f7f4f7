package proxy

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind says which engine carries the bytes.
type Kind uint8

// The engines.
const (
	Auto     Kind = iota // the best one for this system
	Epoll                // Linux: event loops over bare sockets
	Portable             // plain Go, everywhere
)

// String gives the kind as the flag -engine spells it.
func (k Kind) String() string { return kindNames[k] }

// ParseKind is the reverse of String.
func ParseKind(s string) (Kind, error) {
	if i := slices.Index(kindNames[:], s); i >= 0 {
		return Kind(i), nil
	}
	return Auto, fmt.Errorf("no such engine; there are %s", strings.Join(kindNames[:], ", "))
}

var kindNames = [...]string{Auto: "auto", Epoll: "epoll", Portable: "portable"}
