package decode

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"kubeproxy/registry"
)

// ErrEncrypted is the error of a value that an API server has encrypted before it gave it to etcd. No reader of etcd can use it.
var ErrEncrypted = errors.New("encrypted at rest, for the API server alone: use -master in place of -etcd_servers")

// encryptedPrefix begins each value that an API server encrypts.
var encryptedPrefix = []byte("k8s:enc:")

// Decode is [Decoder.Decode] of the zero Decoder for those who follow no key that elects endpoints: a record may name any, and any cluster.
func Decode(key string, value []byte) (Record, []registry.Warning, error) {
	return Decoder{HolderKeys: []string{"/"}, Patroni: "/"}.Decode(key, value)
}

// Decode reads one record as v0.4 and its successors up to v1 stored it. It is pure: it returns warnings, and logs nothing.
//
// An error says what is wrong with the record, and does not name it: the caller that logs it names
// the key. The error of a key that is no record's is [registry.ErrForeign].
func (d Decoder) Decode(key string, value []byte) (Record, []registry.Warning, error) {
	k, err := registry.ParseKey(key)
	if err != nil {
		return Record{}, nil, err
	}
	if len(value) > registry.MaxRecordBytes {
		return Record{}, nil, fmt.Errorf("value of %d bytes is longer than the limit of %d", len(value), registry.MaxRecordBytes)
	}
	if bytes.HasPrefix(value, encryptedPrefix) {
		return Record{}, nil, ErrEncrypted
	}
	said := statement{node: d.Node}
	said.service.at = d.Addresses
	said.endpoints.node, said.slice.node = d.Node, d.Node
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
	name := registry.Name{Namespace: cmp.Or(said.name.Namespace, k.Name.Namespace), Name: cmp.Or(said.name.Name, k.Name.Name)}
	if name != k.Name {
		warnings = append(warnings, registry.Warning("the body says that it is "+registry.Quote(name.Namespace+"/"+name.Name)+"; the key counts"))
	}
	return r, append(oddEnding(k), warnings...), nil
}

// oddEnding warns of a name that looks like that of a file. It is used as it is: v0.4 allowed dots.
func oddEnding(k registry.Key) []registry.Warning {
	for _, ending := range [...]string{".json", ".yaml", ".yml"} {
		if meant, ok := strings.CutSuffix(k.Name.Name, ending); ok && k.Kind != registry.KindEndpointSlice {
			return []registry.Warning{registry.Warning("the service is called " + registry.Quote(k.Name.Name) + ", with the ending: write the record to a key without it if " + registry.Quote(meant) + " is meant")}
		}
	}
	return nil
}
