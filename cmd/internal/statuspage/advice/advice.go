// Package advice says what an operator can do about a fault. The status page puts it at the end of its sentences.
package advice

import (
	"cmp"
	"errors"
	"syscall"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/sockopt"
)

// Open says what to do about a port that cannot be opened.
func Open(err error) string {
	switch {
	case errors.Is(err, syscall.EACCES):
		return "Give kube-proxy CAP_NET_BIND_SERVICE, as the first lines of its unit say, or give the service another port"
	case errors.Is(err, ports.ErrNotHere):
		return "Give the address to an interface of this node, or take it out of the record"
	case errors.Is(err, admit.ErrNoDescriptors), sockopt.IsShortage(err):
		return "Raise the descriptor limit (ulimit -n, LimitNOFILE)"
	}
	return "Free the port (ss -lnp names the program that has it), or give the service another"
}

// Source says what to do about a source that cannot be read, by its cause where that is one of files.
func Source(cause string) string {
	switch cause {
	case "missing":
		return "Put the directory registry/services back into the directory of -registry_dir, or mount its volume"
	case "unreadable":
		return "Let the user of kube-proxy read all of the directory (chmod, chown)"
	case "too_large":
		return "Remove what is no record from the directory"
	}
	return "Check that it runs and that this node reaches it"
}

// OneOf names the endpoints that a verb is about, of which one is enough.
func OneOf(n int) string {
	if n == 1 {
		return "it"
	}
	return "one of them"
}

// Mend says what to do with an endpoint. One that fails its checks may run, and answer wrongly or too late.
func Mend(e rotation.EndpointStatus) string {
	if e.CheckError == "" {
		return "start"
	}
	return "start or repair"
}

// UntilTried says for how long the page goes on to name an endpoint that answers again.
func UntilTried(e rotation.EndpointStatus) string {
	if e.Checked {
		return ""
	}
	return " It stays named until a client reaches it, or with -check_endpoints until its checks pass."
}

var raise = map[string]string{
	"connections":  "raise -max_connections, or use more nodes",
	"udp_sessions": "raise -max_udp_sessions, or shorten -udp_timeout",
	"descriptors":  "raise the descriptor limit (ulimit -n, LimitNOFILE)",
	"listeners":    "raise the descriptor limit (ulimit -n, LimitNOFILE), or offer fewer ports",
}

// Raise says what to do about a limit of the node.
func Raise(limit string) string { return cmp.Or(raise[limit], "raise it") }

// A Refusal is why clients are turned away, or their datagrams dropped, though there are endpoints.
type Refusal struct {
	Code         string // of the reason, as metrics spell it
	Text         string // what it is, and what to do
	OthersServed bool   // no client is kept out that has its share
}

// Refusals are those of clients whom a limit or a missing header turns away.
var Refusals = []Refusal{
	{Code: "no_proxy_header", Text: "they come from a network of -proxy_protocol_from, and no PROXY header says who they are; have what is there send it, or take the network out of the flag"},
	{Code: "service_limit", Text: "the service has as many as allowed (kube-proxy/max-connections, or else -max_connections_per_service and -max_udp_sessions_per_service); raise the limit"},
	{Code: "connection_limit", Text: "the node has as many connections as allowed; " + raise["connections"]},
	{Code: "session_limit", Text: "the node has as many UDP sessions as allowed; " + raise["udp_sessions"]},
	{Code: "descriptor_limit", Text: "the node was out of descriptors or local ports; " + raise["descriptors"]},
	{Code: "endpoint_limit", Text: "each endpoint has as many as allowed (kube-proxy/max-connections-per-endpoint); add endpoints, or raise the limit"},
	{Code: "dial_limit", Text: "as many dials as allowed were under way to each endpoint (-max_dials_per_endpoint); look at why endpoints accept slowly, or add some"},
	{Code: "overload", Text: "more new clients came than may begin sessions (-max_new_udp_sessions); use more nodes, or raise the limit"},
	{Code: "client_limit", Text: "a client has as many as allowed (kube-proxy/max-connections-per-client, or else -max_connections_per_client); look at that client, or raise the limit", OthersServed: true},
	{Code: "waiting", Text: "more came than are kept while a client waits for an endpoint; look at why it waits: a name is resolved slowly, or kube-proxy/wait", OthersServed: true},
	{Code: "queue_full", Text: "datagrams arrived faster than they were read; raise net.core.rmem_max", OthersServed: true},
}
