// Package registry holds the words that the rest of the program uses, and decodes the records that Kubernetes stores.
//
// # What a record is
//
// A record is one key and its value, in JSON or in protobuf. There are three kinds. A Service lists the ports that every node offers. An
// Endpoints record and an EndpointSlice list the addresses that answer. The name joins Endpoints to its Service:
//
//	/registry/services/specs/frontend      {"kind":"Service",   … "port":9998, "protocol":"TCP"}
//	/registry/services/endpoints/frontend  {"kind":"Endpoints", … "endpoints":["10.244.1.5:80"]}
//
// An [EndpointSlice] holds a part of the endpoints. It has a name of its own, and a label names its service. [JoinSlices] adds up the
// endpoints of all slices of a service:
//
//	/registry/services/endpointslices/default/frontend-1  {"kind":"EndpointSlice", …
//	/registry/services/endpointslices/default/frontend-2   "labels":{"kubernetes.io/service-name":"frontend"}, …
//
// A service may offer several ports, so the name of the port joins them to their endpoints as well. A service with a single port
// usually has an empty port name on both sides. A [PortKey] is the name of the service with the name of the port.
//
// # The keys, and how they came to be
//
// Below [Prefix] a key has one of these shapes:
//
//	specs/<name>       endpoints/<name>        v0.2 to v0.4: everything lives in namespace default
//	specs/<ns>/<name>  endpoints/<ns>/<name>   v0.5 and later
//	endpointslices/<ns>/<name>                 v1.16 and later, which itself has them elsewhere
//
// Nothing rewrites old keys, so a registry may hold both forms. [ParseKey] alone decides the kind and the name of a record. In v0.4 the
// name came from the body on one path and from the key on another, and a search of the key for "/endpoints/" gave the kind. So a record
// could be added as one service and removed as another (D21). Here the key counts, and a body that differs causes a [Warning].
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
// an envelope that begins with "k8s" and a zero byte. Package protobuf reads its fields. Both encodings are read into one statement, and
// the same rules apply to it:
//
//	JSON      body.go                          ─▶ ┐            ┌▶ Service, Endpoints or EndpointSlice
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
//     port twice. Every address can be dialled. No list of addresses is empty or repeats an address (D31). Source ranges have one form.
//   - A bad entry in a list of endpoints costs that entry, and a bad record costs that record. Package records decides what becomes of
//     the last good version (D17, D18).
//   - No value causes a panic, or costs more time than in proportion to its length. A value longer than [MaxRecordBytes] is refused
//     unread. The worst shorter one takes 90 times its length in memory while it is decoded, most of it garbage at once, and leaves 10
//     times its length.
//   - Errors and warnings are one printable line of at most 1000 bytes, whatever the record holds. So is every name that this package
//     turns into text (D47).
//   - A value that has been sent is never changed, so an [Update] and a [Batch] may share it.
package registry
