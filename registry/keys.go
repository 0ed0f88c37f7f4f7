package registry

import (
	"errors"
	"fmt"
	"strings"
)

// The layout of the registry in etcd. The prefix ends with a slash: etcd v3 keys are plain bytes,
// and "/registry/services-x" is another key.
const (
	Prefix           = "/registry/services/"
	SpecsPrefix      = Prefix + "specs/"
	EndpointsPrefix  = Prefix + "endpoints/"
	DefaultNamespace = "default"
)

// A Kind tells which of the two kinds of record a key holds.
type Kind uint8

// The two kinds of record.
const (
	KindService Kind = iota
	KindEndpoints
)

// String gives the kind as records spell it.
func (k Kind) String() string {
	if k == KindEndpoints {
		return "Endpoints"
	}
	return "Service"
}

// A Key is what an etcd key says about the record under it. Kind and name come from nowhere else.
type Key struct {
	Kind Kind
	Name Name
	Flat bool // v0.4's one-segment form, which means namespace default
}

// ErrForeign marks a key below [Prefix] that is neither a spec nor endpoints: somebody else's.
var ErrForeign = errors.New("neither a service spec nor endpoints")

// maxName is how long a name or a namespace may be: as long as Kubernetes lets any be (RFC 1123). Each connection
// log line, each page and each metric of a service repeats its name.
const maxName = 253

// ParseKey reads an etcd key: one segment below specs/ or endpoints/ is a name in namespace
// default (v0.4), two are namespace and name (v0.5 and later). A key of any other shape is an
// error, [ErrForeign] when it is not below either.
func ParseKey(key string) (Key, error) {
	var k Key
	rest, ok := strings.CutPrefix(key, SpecsPrefix)
	if !ok {
		if rest, ok = strings.CutPrefix(key, EndpointsPrefix); !ok {
			return Key{}, ErrForeign
		}
		k.Kind = KindEndpoints
	}
	namespace, name, two := strings.Cut(rest, "/")
	if !two {
		namespace, name, k.Flat = DefaultNamespace, rest, true
	}
	switch {
	case strings.Contains(name, "/"):
		return Key{}, fmt.Errorf("key has more than two segments below %s", key[:len(key)-len(rest)])
	case name == "":
		return Key{}, errors.New("empty name in key")
	case namespace == "":
		return Key{}, errors.New("empty namespace in key")
	case len(name) > maxName:
		return Key{}, fmt.Errorf("name of %d bytes in key is longer than %d", len(name), maxName)
	case len(namespace) > maxName:
		return Key{}, fmt.Errorf("namespace of %d bytes in key is longer than %d", len(namespace), maxName)
	}
	k.Name = Name{namespace, name}
	return k, nil
}
