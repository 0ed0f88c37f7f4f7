package probe

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
)

// A Question is what an address is asked. Two that are equal ask the same.
type Question struct {
	Protocol registry.Protocol
	Path     string // over TCP: a GET of this path is answered with a status from 200 to 399; "": a connection will do
	Send     string // over UDP: this datagram
	Expect   string // over UDP: is answered by one that begins so

	Header registry.ProxyHeader // before all that: one that says that the question is the proxy's own
}

// Hash is the same for questions that ask the same, in every process, and never 0.
func (q *Question) Hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %q %q %d", q.Protocol, q.Path, q.Send, q.Expect, q.Header)
	return max(h.Sum64(), 1)
}

// request is what is sent to an address; "" for nothing.
func (q *Question) request(to netip.AddrPort) string {
	header := string(proxyproto.AppendLocal(nil, q.Header, q.Protocol))
	switch {
	case q.Protocol == registry.UDP:
		return header + q.Send
	case q.Path != "":
		return header + "GET " + q.Path + " HTTP/1.1\r\nHost: " + to.String() + "\r\nUser-Agent: kube-proxy\r\nConnection: close\r\n\r\n"
	}
	return header
}

var (
	errOtherAnswer = errors.New("another answer than expected")
	errNotHTTP     = errors.New("the answer is not HTTP")
	errClosed      = errors.New("closed without an answer")
)

// statusLine is how long a status line is as far as it is read: HTTP/1.1 200.
const statusLine = len("HTTP/1.1 200")

// judge says what an answer means: done, unless more of it has to come.
func (q *Question) judge(answer []byte) (done bool, err error) {
	if q.Protocol == registry.UDP {
		if !bytes.HasPrefix(answer, []byte(q.Expect)) {
			return true, errOtherAnswer
		}
		return true, nil
	}
	const begin = "HTTP/1."
	if n := min(len(begin), len(answer)); string(answer[:n]) != begin[:n] {
		return true, errNotHTTP
	}
	if len(answer) < statusLine {
		return false, nil
	}
	status := string(answer[statusLine-3 : statusLine])
	switch {
	case answer[statusLine-4] != ' ' || strings.Trim(status, "0123456789") != "":
		return true, errNotHTTP
	case status[0] != '2' && status[0] != '3':
		return true, fmt.Errorf("GET %s: status %s", registry.Quote(q.Path), status)
	}
	return true, nil
}
