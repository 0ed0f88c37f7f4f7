package checks

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
)

// A Question is what an address is asked. Two that are equal ask the same.
type Question struct {
	Protocol registry.Protocol
	Port     uint16               // is asked in place of the endpoint's; 0: that
	Path     string               // over TCP: a request of this path is answered by a complete header with a status that passes; "": a connection will do
	Method   string               // of the request; "": GET
	Host     string               // in its header; "": the address
	Status   registry.StatusRange // that passes; zero: 200 to 399
	TLS      registry.CheckTLS    // over TCP: all this is asked over TLS
	Send     string               // over UDP: this datagram
	Expect   string               // over UDP: is answered by one that begins so

	Header registry.ProxyHeader // before all that: one that says that the question is the proxy's own
}

// Hash is the same for questions that ask the same, in every process, and never 0.
func (q *Question) Hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %q %q %d", q.Protocol, q.Path, q.Send, q.Expect, q.Header)
	if more := (Question{Port: q.Port, Method: q.Method, Host: q.Host, Status: q.Status}); more != (Question{}) { // or a release without these would differ
		fmt.Fprintf(h, " %d %q %q %v", q.Port, q.Method, q.Host, q.Status)
	}
	if q.TLS != registry.CheckPlain { // likewise
		fmt.Fprintf(h, " tls %d", q.TLS)
	}
	return max(h.Sum64(), 1)
}

// opening is what is sent to an address before TLS, if there is any; "" for nothing.
func (q *Question) opening(to netip.AddrPort) string {
	header := string(proxyproto.AppendLocal(nil, q.Header, q.Protocol))
	switch {
	case q.Protocol == registry.UDP:
		return header + q.Send
	case q.TLS == registry.CheckPlain:
		return header + q.request(to)
	}
	return header
}

// request is the request of HTTP to an address; "" for none.
func (q *Question) request(to netip.AddrPort) string {
	if q.Path == "" {
		return ""
	}
	return q.method() + " " + q.Path + " HTTP/1.1\r\nHost: " + cmp.Or(q.Host, to.String()) + "\r\nUser-Agent: kube-proxy\r\nConnection: close\r\n\r\n"
}

// serverName is whose certificate an endpoint has to show: that of the host that is asked for, of the name of the endpoint, or of its address.
func (k *Key) serverName(to netip.AddrPort) string {
	host := k.Question.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return cmp.Or(strings.Trim(host, "[]"), k.Addr.Host, to.Addr().Unmap().WithZone("").String())
}

func (q *Question) method() string { return cmp.Or(q.Method, "GET") }
