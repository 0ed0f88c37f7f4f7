package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"kubeproxy/registry"
)

// A body is the value of a record that is JSON, opened as far as all of its versions have in common. The fields
// that stay raw are parts of the value. They are read when it is known that this version has them, so
// that a field of the wrong type costs nothing where it means nothing.
type body struct {
	value       []byte
	nested      bool            // v1beta3 and v1, and every version of endpoint slices
	labels      json.RawMessage // wherever this version has them; see identity
	annotations json.RawMessage // the same

	Kind        string
	APIVersion  string
	ID          json.RawMessage // flat
	Namespace   json.RawMessage // flat
	Metadata    json.RawMessage // nested
	Spec        json.RawMessage // nested
	Endpoints   json.RawMessage
	Annotations json.RawMessage // flat
	Labels      json.RawMessage // flat
	Subsets     json.RawMessage
	AddressType json.RawMessage // of endpoint slices, as are Ports
	Ports       json.RawMessage
	Status      json.RawMessage // nested
}

// open checks that value is a record of this kind and of a version that is known.
func (b *body) open(kind registry.Kind, value []byte) error {
	if err := checkObject(value); err != nil {
		return err
	}
	if err := b.read(value); err != nil {
		return err
	}
	if b.Kind != "" && b.Kind != kind.String() { // exactly, as v0.4 had it
		return fmt.Errorf("kind is %s where %v is wanted", registry.Quote(b.Kind), kind)
	}
	nested, ok := NestedForm(kind, b.APIVersion)
	if !ok {
		return fmt.Errorf("unknown apiVersion %s", registry.Quote(b.APIVersion))
	}
	b.nested = nested
	return nil
}

// NestedForm reports whether records of a kind have their fields in metadata and spec, in a version that is named as apiVersion
// does it; ok is false for a version that is not known. Endpoint slices have an API group of their own, and so versions of their own.
func NestedForm(kind registry.Kind, version string) (nested, ok bool) {
	switch version {
	case "":
		return kind == registry.KindEndpointSlice, true
	case "v1beta1", "v1beta2":
		return false, kind != registry.KindEndpointSlice
	case "v1beta3", "v1":
		return true, kind != registry.KindEndpointSlice
	case "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1", "discovery.k8s.io/v1alpha1":
		return true, kind == registry.KindEndpointSlice
	}
	return false, false
}

// read finds the fields of an object, as package json would: among repeated keys the last counts. It is
// done here in place, because records change all the time and package json leaves garbage of each.
func (b *body) read(value []byte) error {
	if !json.Valid(value) {
		return unmarshal("", value, new(json.RawMessage)) // which says where
	}
	b.value = value
	for key, raw := range members(value) {
		var err error
		switch field := b.fieldOf(key); {
		case field != nil:
			*field = raw
		case isKey(key, "kind"):
			err = readString("kind", raw, &b.Kind)
		case isKey(key, "apiVersion"):
			err = readString("apiVersion", raw, &b.APIVersion)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fieldOf returns where the value of a key is kept as it is; nil: nowhere.
func (b *body) fieldOf(key []byte) *json.RawMessage {
	switch {
	case isKey(key, "id"):
		return &b.ID
	case isKey(key, "namespace"):
		return &b.Namespace
	case isKey(key, "metadata"):
		return &b.Metadata
	case isKey(key, "spec"):
		return &b.Spec
	case isKey(key, "endpoints"):
		return &b.Endpoints
	case isKey(key, "annotations"):
		return &b.Annotations
	case isKey(key, "labels"):
		return &b.Labels
	case isKey(key, "addressType"):
		return &b.AddressType
	case isKey(key, "ports"):
		return &b.Ports
	case isKey(key, "subsets"):
		return &b.Subsets
	case isKey(key, "status"):
		return &b.Status
	}
	return nil
}

// identity gives the name by which the body calls itself; what it leaves out is empty. It finds the labels and annotations, too.
func (b *body) identity() (n registry.Name, err error) {
	switch {
	case !b.nested:
		b.labels, b.annotations = b.Labels, b.Annotations
		err = cmp.Or(readString("id", b.ID, &n.Name), readString("namespace", b.Namespace, &n.Namespace))
		return n, err
	case isNull(b.Metadata):
		return n, nil
	case b.Metadata[0] != '{':
		return n, unmarshal("metadata", b.Metadata, new(struct{})) // which says what is wrong with it
	}
	for key, raw := range members(b.Metadata) {
		switch {
		case isKey(key, "name"):
			err = readString("metadata.name", raw, &n.Name)
		case isKey(key, "namespace"):
			err = readString("metadata.namespace", raw, &n.Namespace)
		case isKey(key, "labels"):
			b.labels = raw
		case isKey(key, "annotations"):
			b.annotations = raw
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
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
	case bytes.HasPrefix(value, []byte("\ufeff")):
		return errors.New("not JSON: begins with a byte order mark")
	case text[0] == '{':
		return nil
	case !json.Valid(text):
		return fmt.Errorf("not JSON: begins with %s (YAML and plain text are not accepted)", registry.QuoteShort(string(text)))
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
