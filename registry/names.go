package registry

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace of the flat keys of v0.4.
const DefaultNamespace = "default"

// A Name identifies a service, and the endpoints of that service. It comes from the etcd key and
// never from the body of a record (D21).
type Name struct {
	Namespace string // [DefaultNamespace] for the flat keys of v0.4
	Name      string
}

// String gives the name as logs show it: "name" in namespace default, else "namespace/name". Keys
// may hold any bytes, so a name that is not plain is quoted and cut (D47).
func (n Name) String() string {
	s := n.Name
	if n.Namespace != DefaultNamespace {
		s = n.Namespace + "/" + n.Name
	}
	return QuoteUnlessPlain(s)
}

// ParseName reads a name as an operator types it: NAME in namespace default, NAMESPACE/NAME, or either as [Label] quotes it.
func ParseName(text string) (Name, error) {
	if strings.HasPrefix(text, `"`) {
		if plain, err := strconv.Unquote(text); err == nil {
			text = plain
		}
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = DefaultNamespace, text
	}
	if _, err := ParseKey(SpecsPrefix + namespace + "/" + name); err != nil || namespace == "" || name == "" {
		return Name{}, errors.New("must be NAME or NAMESPACE/NAME")
	}
	return Name{Namespace: namespace, Name: name}, nil
}

// Check reports an error if the name has other characters than those that names of services are made of. Keys of records may hold any bytes; who
// writes them should not use that.
func (n Name) Check() error {
	for _, part := range [...]string{n.Namespace, n.Name} {
		if part == "" || len(part) > MaxName || !consistsOf(part, "-._") {
			return fmt.Errorf("name %s is not made of at most %d letters, digits, dashes, dots and underscores", Quote(part), MaxName)
		}
	}
	return nil
}

// Compare orders names by namespace, then by name.
func (n Name) Compare(m Name) int {
	return cmp.Or(strings.Compare(n.Namespace, m.Namespace), strings.Compare(n.Name, m.Name))
}

// A PortKey names one rotation: the endpoints behind one port of one service. Port is the name of
// that port, "" for the unnamed one.
type PortKey struct {
	Name
	Port string
}

// String gives the key as logs show it: the service's name, and the port's after a colon if it has one.
func (k PortKey) String() string {
	if k.Port == "" {
		return k.Name.String()
	}
	return k.Name.String() + ":" + QuoteUnlessPlain(k.Port)
}
