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
