package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// hosts are those that a request may name: ours, the one that clients have for a socket if they need one, and none.
var hosts = []string{"node", "localhost", ""}

// ofBrowsers are the headers that a browser adds, and that a page in it cannot leave out: Origin to what could change something, Sec-Fetch-Site
// to everything. No client of ours sends them.
var ofBrowsers = []string{"Origin", "Sec-Fetch-Site"}

// foreign is the error about a request that a browser could have sent; nil for any other. No browser reaches a UNIX socket, but one reaches a
// forwarder to it, such as that of ssh -L or socat, and then each page that is open in the browser does.
func foreign(r *http.Request) error {
	for _, header := range ofBrowsers {
		if values, ok := r.Header[header]; ok {
			return failure{http.StatusForbidden, fmt.Errorf("it has the header %s: %s, as browsers send it, and browsers are not answered", header, registry.Quote(strings.Join(values, ",")))}
		}
	}
	if !slices.Contains(hosts, strings.ToLower(r.Host)) {
		return failure{http.StatusForbidden, fmt.Errorf("its host is %s, and not node or localhost without a port, as in http://node/v1/status", registry.Quote(r.Host))}
	}
	return nil
}

// admitted refuses what a browser could have sent, and has the whole body of a request before next is asked: who sends half of one waits to be
// served, and makes room for others like all who wait.
func admitted(next http.Handler) http.Handler {
	var refused lograte.Limiter[struct{}] // lines
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := foreign(r); err != nil {
			respond(w, r, func(*http.Request) (any, error) { return nil, err })
			if note, ok := refused.Allow(struct{}{}); ok {
				glog.Warningf("a request at the control socket is not answered: %v%s", err, note)
			}
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				err = failure{http.StatusRequestEntityTooLarge, fmt.Errorf("the body cannot be read: it has more than %d bytes", maxBody)}
			} else {
				err = badRequest("the body cannot be read: %s", registry.Quote(err.Error()))
			}
			respond(w, r, func(*http.Request) (any, error) { return nil, err })
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
