package checks

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"kubeproxy/registry"
)

var (
	errOtherAnswer = errors.New("another answer than expected")
	errNotHTTP     = errors.New("the answer is not HTTP")
	errLongHead    = fmt.Errorf("the header of the answer is longer than %d bytes", maxHead)
	errClosed      = errors.New("closed without an answer")

	errNotTLS    = errors.New("the answer is not TLS")
	errAuthority = errors.New("the certificate is of no authority that is trusted (-endpoint_check_cafile)")
	errOtherName = errors.New("the certificate is another host's (kube-proxy/check-host)")
	errExpired   = errors.New("the certificate has expired, or is not valid yet")
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
