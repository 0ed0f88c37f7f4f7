// Package registry holds the words that the rest of the program uses: services, endpoints, their keys, and how changes of them travel.
//
// # What a record is
//
// A record is one key and its value, in JSON or in protobuf. [kubeproxy/registry/decode] reads it. There are three kinds. A Service lists
// the ports that every node offers. An Endpoints record and an EndpointSlice list the addresses that answer. The name joins Endpoints to
// its Service:
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
// # What is promised
//
//   - The package does no I/O, logs nothing and starts nothing.
//   - Its values need no further check. No list of addresses is empty or repeats an address (D31). Source ranges have one form.
//   - A value that has been sent is never changed, so an [Update] and a [Batch] may share it.
//   - Errors and warnings are one printable line of at most 1000 bytes, whatever the record holds. So is every name that this package
//     turns into text (D47).
package registry
