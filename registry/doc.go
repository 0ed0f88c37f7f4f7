// Package registry holds the words that the rest of the program speaks, and reads them out of the
// records that Kubernetes keeps in etcd.
//
// # What a record is
//
// A record is one key in etcd and the JSON under it. There are three kinds. A Service says which
// ports are offered on every node; an Endpoints record says where the programs behind a service
// answer. Both carry the same name, and that is all that ties them together:
//
//	/registry/services/specs/frontend      {"kind":"Service",   … "port":9998, "protocol":"TCP"}
//	/registry/services/endpoints/frontend  {"kind":"Endpoints", … "endpoints":["10.244.1.5:80"]}
//
// Later, endpoints came in parts. An [EndpointSlice] has a name of its own, and a label names its service. [JoinSlices] gives the
// endpoints that all slices of a service add up to:
//
//	/registry/services/endpointslices/default/frontend-1  {"kind":"EndpointSlice", …
//	/registry/services/endpointslices/default/frontend-2   "labels":{"kubernetes.io/service-name":"frontend"}, …
//
// Since one service may offer several ports, a port is joined to its endpoints by the port's name
// as well. A service with a single port usually leaves that name empty on both sides. [PortKey] is
// this join.
//
// # The keys, and how they came to be
//
// Below [Prefix] a key has one of these shapes:
//
//	specs/<name>       endpoints/<name>        v0.2 to v0.4: everything lives in namespace default
//	specs/<ns>/<name>  endpoints/<ns>/<name>   v0.5 and later
//	endpointslices/<ns>/<name>                 v1.16 and later, which itself has them elsewhere
//
// Nothing rewrites old keys, so both are met side by side. [ParseKey] reads them; it is also the
// only place where a record gets its kind and its name. v0.4 took the name from the body on one
// path and from the key on another, and found the kind by searching the key for "/endpoints/", so
// that a record could be added as one service and removed as another (D21). Here a body that
// disagrees with its key earns a [Warning], and the key counts.
//
// # The bodies
//
// The body came in these versions. What sets them apart is where the fields are:
//
//	(none), v1beta1, v1beta2   flat: id, namespace, port, protocol, endpoints at the top
//	v1beta3, v1                nested: metadata.name, metadata.namespace, spec.ports, subsets
//	discovery.k8s.io/v1        endpoint slices: metadata.labels, addressType, endpoints, ports
//
// The later flat records also have the lists "ports" and "subsets", and the early nested ones a
// single spec.port and a list of endpoints without subsets: [Decode] reads them all. Later still,
// Kubernetes went over to protobuf: the same fields of the nested form by numbers, in an envelope that begins with "k8s" and a zero
// byte. Both ways of writing are read into the same words, and the same rules are applied to these:
//
//	JSON      body.go                          ─▶ ┐            ┌▶ Service, Endpoints or EndpointSlice
//	protobuf  protobuf.go, protobuf_records.go ─▶ statement ──▶┤
//	                                                           └▶ warnings, or an error
//
// v0.4 read bodies with a YAML parser that left at zero whatever had the wrong type, and took
// anything for an object. So "port": "80" listened on a random port (D12), an empty value was a
// service without a name (D13), and legal JSON escapes were errors (D14). Here a body is one JSON
// object, and the fields that the proxy needs have the right type or the record is refused. The
// other fields may hold anything, so a label of the wrong type cannot take a service down. Protobuf has no types to get wrong, but
// lengths: each is checked, unknown fields are passed over, and groups, which Kubernetes does not use, are refused.
//
// # What is promised
//
//   - [Decode] is pure. It does no I/O, logs nothing, starts nothing, and the same key and value
//     give the same answer each time.
//   - What it returns needs no second look. Port numbers are 1 to 65535 and protocols known (a
//     missing one is TCP, D15); no service offers the same port twice; every address can be dialled;
//     no list of addresses is empty or names one address twice (D31); source ranges have one form.
//   - One bad entry in a list of endpoints costs that entry; one bad record costs that record. What
//     becomes of the last good version is for the reader of etcd to decide (D17, D18).
//   - No value can make it panic, or cost more than time in proportion to its length. A value longer
//     than [MaxRecordBytes] is refused unread. The worst within it takes 200 times that in memory
//     while it is read, most of it garbage at once, and leaves 10 times that behind.
//   - Errors and warnings are one printable line of at most 1000 bytes, whatever the record holds,
//     and so is every name that this package turns into text (D47).
//   - Values are never changed once they have been sent: [Update] and [Batch] share them freely.
package registry
