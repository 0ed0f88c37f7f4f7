package registry

import (
	"cmp"
	"fmt"
)

// A Record is one decoded record: exactly one of Service, Endpoints and Slice is set.
type Record struct {
	Key       Key
	Service   *Service
	Endpoints *Endpoints
	Slice     *EndpointSlice
	Dropped   int // entries of Endpoints or Slice that could not be used; a warning names some of them

	NoNodePort int // ports of Service that are not among its Ports for want of a nodePort: see [Decoder]
}

// MaxRecordBytes is how long the value of a record may be: as long as etcd takes, unless it was told
// to take longer requests (-max-request-bytes, 1.5 MiB). A longer one is refused unread, so that what
// one record can make us do has an end.
const MaxRecordBytes = 3 << 19

// A Warning is something odd in a record that is used all the same. It is one line, safe to log.
type Warning string

// A Decoder says how records are understood. The zero value understands them as v0.4 did. It is a value: any goroutine may use a copy.
type Decoder struct {
	// NodePorts has a service offer the nodePort of each of its ports in place of the port itself. A port without one is not offered.
	NodePorts bool
}

// Decode is [Decoder.Decode] of the zero Decoder.
func Decode(key string, value []byte) (Record, []Warning, error) { return Decoder{}.Decode(key, value) }

// Decode reads one record as v0.4 and its successors up to v1 stored it. It is pure: what it has
// to say besides the record comes back as warnings, and nothing is logged here.
//
// An error says what is wrong with the record and not which record it is: whoever logs it names
// the key. The error of a key that is no record's is [ErrForeign].
func (d Decoder) Decode(key string, value []byte) (Record, []Warning, error) {
	k, err := ParseKey(key)
	if err != nil {
		return Record{}, nil, err
	}
	if len(value) > MaxRecordBytes {
		return Record{}, nil, fmt.Errorf("value of %d bytes is longer than the limit of %d", len(value), MaxRecordBytes)
	}
	var said statement
	if isProtobuf(value) {
		err = said.readProtobuf(k, value)
	} else {
		err = said.readJSON(k.Kind, value)
	}
	if err != nil {
		return Record{}, nil, err
	}
	r, warnings, err := d.record(k, &said)
	if err != nil {
		return Record{}, nil, err
	}
	name := Name{cmp.Or(said.name.Namespace, k.Name.Namespace), cmp.Or(said.name.Name, k.Name.Name)}
	if name != k.Name {
		warnings = append(warnings, Warning("the body says that it is "+Quote(name.Namespace+"/"+name.Name)+"; the key counts"))
	}
	return r, warnings, nil
}

// A statement is what a value says, in whichever encoding: read, and not checked yet. The rules of records are applied to it.
type statement struct {
	name Name // by which it calls itself; what it leaves out is empty

	service   serviceSpec
	endpoints collector
	slice     sliceParts
}

// record makes a record of what a value says.
func (d Decoder) record(k Key, said *statement) (r Record, warnings []Warning, err error) {
	r.Key = k
	switch k.Kind {
	case KindService:
		r.Service, r.NoNodePort, warnings, err = said.service.service(k.Name, d.NodePorts)
	case KindEndpoints:
		r.Endpoints = &Endpoints{Name: k.Name, ByPort: said.endpoints.byPort()}
		r.Dropped = said.endpoints.count
		warnings = said.endpoints.leftOut.warnings()
	case KindEndpointSlice:
		r.Slice, err = said.slice.slice(k.Name)
		r.Dropped = said.slice.count
		warnings = said.slice.warnings()
	}
	return r, warnings, err
}
