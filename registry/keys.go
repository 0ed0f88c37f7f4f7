package registry

import (
	"errors"
	"fmt"
	"strings"
)

// The layout of the registry in etcd. The prefix ends with a slash: etcd v3 keys are plain bytes,
// and "/registry/services-x" is another key.
const (
	Prefix               = "/registry/services/"
	SpecsPrefix          = Prefix + "specs/"
	EndpointsPrefix      = Prefix + "endpoints/"
	EndpointSlicesPrefix = Prefix + "endpointslices/"
)

// A Kind tells which kind of record a key holds.
type Kind uint8

// The kinds of record.
const (
	KindService Kind = iota
	KindEndpoints
	KindEndpointSlice
)

// String gives the kind as records spell it.
func (k Kind) String() string {
	switch k {
	case KindEndpoints:
		return "Endpoints"
	case KindEndpointSlice:
		return "EndpointSlice"
	}
	return "Service"
}

// A Key is what an etcd key says about the record under it. Kind and name come from nowhere else.
type Key struct {
	Kind Kind
	Name Name // of an endpoint slice: its own, and not that of its service
	Flat bool // v0.4's one-segment form, which means namespace default
}

// cutPrefix gives the kind of a key, and what follows the prefix of that kind.
func cutPrefix(key string) (kind Kind, rest string, ok bool) {
	rest, ok = strings.CutPrefix(key, Prefix)
	if !ok {
		return 0, "", false
	}
	for kind, prefix := range [...]string{KindService: SpecsPrefix, KindEndpoints: EndpointsPrefix, KindEndpointSlice: EndpointSlicesPrefix} {
		if below, ok := strings.CutPrefix(rest, prefix[len(Prefix):]); ok {
			return Kind(kind), below, true
		}
	}
	return 0, "", false
}

// ErrForeign marks a key below [Prefix] that is of none of the kinds: another program wrote it.
var ErrForeign = errors.New("neither a service spec, nor endpoints, nor an endpoint slice")

// MaxName is how long a name or a namespace may be: as long as Kubernetes lets any be (RFC 1123). Each connection
// log line, each page and each metric of a service repeats its name.
const MaxName = 253

// ParseKey reads an etcd key: one segment below specs/ or endpoints/ is a name in namespace
// default (v0.4), two are namespace and name (v0.5 and later). Endpoint slices came later than that, and
// always have both. A key of any other shape is an error, [ErrForeign] when it is below none of the prefixes.
func ParseKey(key string) (Key, error) {
	kind, rest, ok := cutPrefix(key)
	if !ok {
		return Key{}, ErrForeign
	}
	k := Key{Kind: kind}
	namespace, name, two := strings.Cut(rest, "/")
	if !two {
		namespace, name, k.Flat = DefaultNamespace, rest, true
	}
	switch {
	case k.Flat && name != "" && kind == KindEndpointSlice:
		return Key{}, fmt.Errorf("key has one segment below %s, where a namespace and a name are wanted", EndpointSlicesPrefix)
	case strings.Contains(name, "/"):
		return Key{}, fmt.Errorf("key has more than two segments below %s", key[:len(key)-len(rest)])
	case name == "":
		return Key{}, errors.New("empty name in key")
	case namespace == "":
		return Key{}, errors.New("empty namespace in key")
	case len(name) > MaxName:
		return Key{}, fmt.Errorf("name of %d bytes in key is longer than %d", len(name), MaxName)
	case len(namespace) > MaxName:
		return Key{}, fmt.Errorf("namespace of %d bytes in key is longer than %d", len(namespace), MaxName)
	}
	k.Name = Name{namespace, name}
	return k, nil
}

// MaxRecordBytes is how long the value of a record may be: as long as etcd takes, unless it was told
// to take longer requests (-max-request-bytes, 1.5 MiB). A longer one is refused unread, so that what
// one record can make us do has an end.
const MaxRecordBytes = 3 << 19
