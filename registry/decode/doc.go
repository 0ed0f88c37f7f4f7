// Package decode reads the records that Kubernetes stores. It checks each one once, completely.
//
// # The bodies
//
// The versions of the body differ in where the fields are:
//
//	(none), v1beta1, v1beta2   flat: id, namespace, port, protocol, endpoints at the top
//	v1beta3, v1                nested: metadata.name, metadata.namespace, spec.ports, subsets
//	discovery.k8s.io/v1        endpoint slices: metadata.labels, addressType, endpoints, ports
//
// Later flat records also have the lists "ports" and "subsets". Early nested ones have a single spec.port, and a list of endpoints
// without subsets. [Decode] reads them all. Since v1.6 Kubernetes stores protobuf by default: the fields of the nested form by number, in
// an envelope that begins with "k8s" and a zero byte. Package wire has its fields, in place; jsontext.go has those of JSON, which is
// checked once by [encoding/json.Valid], and then cut up without a copy. Both encodings are read into one statement, and the same rules apply to it:
//
//	JSON      body.go, json_records.go         ─▶ ┐            ┌▶ Service, Endpoints or EndpointSlice
//	protobuf  protobuf.go, protobuf_records.go ─▶ statement ──▶┤
//	                                                           └▶ warnings, or an error
//
// v0.4 read bodies with a YAML parser that set a field of the wrong type to zero, and accepted anything as an object. So "port": "80"
// listened on a random port (D12), an empty value was a service without a name (D13), and legal JSON escapes were errors (D14). Here a
// body in JSON is one object, and a record is refused if a field that the proxy needs has the wrong type. Other fields may hold
// anything, so a label of the wrong type does not stop a service. In protobuf each length is checked, unknown fields are skipped, and
// groups, which Kubernetes does not use, are refused.
//
// # What is promised
//
//   - [Decode] is pure. It does no I/O, logs nothing and starts nothing. The same key and value always give the same result.
//   - Its results need no further check. Port numbers are 1 to 65535 and protocols known (a missing one is TCP, D15). No service offers a
//     port twice. Every address can be dialled. No list of addresses is empty or repeats an address (D31).
//   - A bad entry in a list of endpoints costs that entry, and a bad record costs that record. Package records decides what becomes of
//     the last good version (D17, D18).
//   - No value causes a panic, or costs more time than in proportion to its length. A value longer than [registry.MaxRecordBytes] is
//     refused unread. The worst shorter one takes 90 times its length in memory while it is decoded, most of it garbage at once, and
//     leaves 10 times its length.
//   - Errors and warnings are one printable line of at most 1000 bytes, whatever the record holds.
package decode
