// Package control lets the operator of a node ask it, and act on it, over a UNIX socket: kube-proxy status, log, sessions, drain and others are
// its clients, and curl --unix-socket is one, too.
//
//	GET  /v1/status[?service=]     the sentences of the status page
//	GET  /v1/log[?n=&service=]     the last changes
//	GET  /v1/sessions[?service=&client=&endpoint=]
//	                               connections and UDP sessions, a line of JSON for each
//	POST /v1/kill {service, client, endpoint}
//	                               ends those that are selected
//	GET  /v1/wait?endpoint=&timeout=
//	                               waits until an endpoint has no client on this node
//	GET  /v1/overrides             what operators want in place of the records
//	POST /v1/override {service, endpoint, word, weight, for, force}
//	                               drain, disable or weight; without a service, drain is about the node
//	POST /v1/enable {service, endpoint}
//	                               ends overrides
//
// A service is NAME or NAMESPACE/NAME, a client an address, ADDRESS:PORT or a network, and an endpoint HOST:PORT or HOST. Answers are JSON. An error is an object with one field, error, and the status says of what kind it is: 400 for a wrong request, 404 for something
// that is not there, 409 for what the state does not allow, 503 while the node cannot act.
//
// # Who may
//
// The socket belongs to the user of the process: package ownersocket makes it with mode 0600, in a directory where nobody else can replace it, and
// each peer is asked of the kernel. A peer of another user is closed before it is read.
//
// A browser of that user is nobody: by a forwarder to the socket, every page in it could ask. So a request that names another host than node, localhost or
// none, or has a header that only browsers send, is refused with status 403.
//
// # What it may cost
//
// There are a few connections at a time; one that waits without being served makes room for a new one. Requests and answers have bounds of size
// and of time, except an answer that waits for something: it ends with the time that its request names.
package control
