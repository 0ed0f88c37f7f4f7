package checks

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
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

var (
	errOtherAnswer = errors.New("another answer than expected")
	errNotHTTP     = errors.New("the answer is not HTTP")
	errLongHead    = fmt.Errorf("the header of the answer is longer than %d bytes", maxHead)
	errClosed      = errors.New("closed without an answer")
)

// maxHead bounds the status line and the header of an answer: as much as HAProxy reads of one by default. Who asks 512 addresses at a time
// keeps 8 MiB of them at most.
const maxHead = 16 << 10

// judge says what an answer means: done, unless more of it has to come. An HTTP answer counts once its header is complete: a server that
// hangs behind its status line serves nobody.
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
	head := answer[:min(len(answer), maxHead)]
	if !bytes.Contains(head, []byte("\n\r\n")) && !bytes.Contains(head, []byte("\n\n")) {
		if len(head) == maxHead {
			return true, errLongHead
		}
		return false, nil
	}
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), &http.Request{Method: q.method()})
	switch {
	case err != nil:
		return true, errNotHTTP
	case r.StatusCode < int(cmp.Or(q.Status.Low, 200)) || r.StatusCode > int(cmp.Or(q.Status.High, 399)):
		return true, fmt.Errorf("%s %s: status %d", q.method(), registry.Quote(q.Path), r.StatusCode)
	}
	return true, nil
}

func (q *Question) method() string { return cmp.Or(q.Method, http.MethodGet) }
