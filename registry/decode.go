package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// A Record is one decoded record: exactly one of Service and Endpoints is set.
type Record struct {
	Key       Key
	Service   *Service
	Endpoints *Endpoints
	Dropped   int // entries of Endpoints that could not be used; a warning names some of them
}

// MaxRecordBytes is how long the value of a record may be: as long as etcd takes, unless it was told
// to take longer requests (-max-request-bytes, 1.5 MiB). A longer one is refused unread, so that what
// one record can make us do has an end.
const MaxRecordBytes = 3 << 19

// A Warning is something odd in a record that is used all the same. It is one line, safe to log.
type Warning string

// Decode reads one record as v0.4 and its successors up to v1 stored it. It is pure: what it has
// to say besides the record comes back as warnings, and nothing is logged here.
//
// An error says what is wrong with the record and not which record it is: whoever logs it names
// the key. The error of a key that is no record's is [ErrForeign].
func Decode(key string, value []byte) (Record, []Warning, error) {
	k, err := ParseKey(key)
	if err != nil {
		return Record{}, nil, err
	}
	if len(value) > MaxRecordBytes {
		return Record{}, nil, fmt.Errorf("value of %d bytes is longer than the limit of %d", len(value), MaxRecordBytes)
	}
	b, err := open(k.Kind, value)
	if err != nil {
		return Record{}, nil, err
	}
	said, err := b.identity()
	if err != nil {
		return Record{}, nil, err
	}
	var warnings []Warning
	said = Name{cmp.Or(said.Namespace, k.Name.Namespace), cmp.Or(said.Name, k.Name.Name)}
	if said != k.Name {
		warnings = append(warnings, Warning("the body says that it is "+Quote(said.Namespace+"/"+said.Name)+"; the key counts"))
	}
	r := Record{Key: k}
	switch k.Kind {
	case KindService:
		service, more, err := decodeService(k.Name, b)
		if err != nil {
			return Record{}, nil, err
		}
		r.Service = service
		warnings = append(warnings, more...)
	case KindEndpoints:
		endpoints, out, err := decodeEndpoints(k.Name, b)
		if err != nil {
			return Record{}, nil, err
		}
		r.Endpoints, r.Dropped = endpoints, out.count
		if out.count > 0 {
			warnings = append(warnings, out.warning())
		}
	}
	return r, warnings, nil
}

// A body is the value of a record, opened as far as all of its versions have in common. The fields
// that stay raw are read when it is known that this version has them, so that a field of the
// wrong type costs nothing where it means nothing.
type body struct {
	value  []byte
	nested bool // v1beta3 and v1

	Kind        string          `json:"kind"`
	APIVersion  string          `json:"apiVersion"`
	ID          json.RawMessage `json:"id"`        // flat
	Namespace   json.RawMessage `json:"namespace"` // flat
	Metadata    json.RawMessage `json:"metadata"`  // nested
	Spec        json.RawMessage `json:"spec"`      // nested
	Endpoints   json.RawMessage `json:"endpoints"`
	Annotations json.RawMessage `json:"annotations"` // flat
	Subsets     json.RawMessage `json:"subsets"`
}

// open checks that value is a record of this kind and of a version that is known.
func open(kind Kind, value []byte) (*body, error) {
	if err := checkObject(value); err != nil {
		return nil, err
	}
	b := &body{value: value}
	if err := unmarshal("", value, b); err != nil {
		return nil, err
	}
	if b.Kind != "" && b.Kind != kind.String() { // exactly, as v0.4 had it
		return nil, fmt.Errorf("kind is %s where %v is wanted", Quote(b.Kind), kind)
	}
	switch b.APIVersion {
	case "", "v1beta1", "v1beta2":
	case "v1beta3", "v1":
		b.nested = true
	default:
		return nil, fmt.Errorf("unknown apiVersion %s", Quote(b.APIVersion))
	}
	return b, nil
}

// identity gives the name by which the body calls itself; what it leaves out is empty.
func (b *body) identity() (Name, error) {
	var n Name
	if !b.nested {
		return n, cmp.Or(b.field("id", b.ID, &n.Name), b.field("namespace", b.Namespace, &n.Namespace))
	}
	var metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	err := b.field("metadata", b.Metadata, &metadata)
	return Name{metadata.Namespace, metadata.Name}, err
}

// spec reads the fields of a service, wherever this version has them.
func (b *body) spec(into *serviceSpec) error {
	if b.nested {
		return b.field("spec", b.Spec, into)
	}
	return unmarshal("", b.value, into)
}

// field reads one field that open left raw. A field that is not there changes nothing.
func (b *body) field(name string, raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return unmarshal(name, raw, into)
}

// checkObject refuses what cannot be a JSON object, by the name of what it is. D13: v0.4 took all
// of these for blank objects, and read YAML too.
func checkObject(value []byte) error {
	text := bytes.Trim(value, jsonSpace)
	switch {
	case len(value) == 0:
		return errors.New("empty value")
	case len(text) == 0:
		return errors.New("empty value: nothing but white space")
	case bytes.HasPrefix(value, []byte("k8s\x00")):
		return errors.New("protobuf value, as Kubernetes stores since 1.6: only JSON can be read")
	case bytes.HasPrefix(value, []byte("\ufeff")):
		return errors.New("not JSON: begins with a byte order mark")
	case text[0] == '{':
		return nil
	case !json.Valid(text):
		return fmt.Errorf("not JSON: begins with %s (YAML and plain text are not accepted)", quote(string(text), maxQuotedShort))
	}
	what := "a number"
	switch text[0] {
	case '[':
		what = "an array"
	case '"':
		what = "a string"
	case 't', 'f':
		what = "a boolean"
	case 'n':
		what = "null"
	}
	return fmt.Errorf("%s where a JSON object is wanted", what)
}
