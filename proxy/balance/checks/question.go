package checks

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"

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
	return max(h.Sum64(), 1)
}

// request is what is sent to an address; "" for nothing.
func (q *Question) request(to netip.AddrPort) string {
	header := string(proxyproto.AppendLocal(nil, q.Header, q.Protocol))
	switch {
	case q.Protocol == registry.UDP:
		return header + q.Send
	case q.Path != "":
		return header + q.method() + " " + q.Path + " HTTP/1.1\r\nHost: " + cmp.Or(q.Host, to.String()) + "\r\nUser-Agent: kube-proxy\r\nConnection: close\r\n\r\n"
	}
	return header
}

func (q *Question) method() string { return cmp.Or(q.Method, "GET") }
