package apisource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"kubeproxy/config/remote"
	"net"
	"net/url"
	"strings"
)

// A Cause is why a session ended, or why none can begin. They are kept apart because each asks something else of an
// operator: to start a server, to mend a certificate, to grant a permission, or nothing at all.
type Cause int

// The causes.
const (
	Broken    Cause = iota // there is no connection, or it broke
	Insecure               // no connection that TLS approves of: a wrong certificate
	Silent                 // no answer in time
	Refused                // the server does not know us: no token, or one that has expired
	Forbidden              // the server knows us, and we may not list or watch
	Unable                 // the server answers with another error, or with what is no answer
	Expired                // the server ended the watch, because what it had to tell next is no longer known
	Stale                  // the server has gone on, and the watch has not told
	Brief                  // the server ends each watch as soon as it has begun
	NumCauses              // how many there are
)

// The words for each cause: a short name without blanks, which metrics spell the same, and the beginning of a log line
// about the server at some address.
var causes = [NumCauses]struct{ name, line string }{
	Broken:    {"broken", "API server at %s unreachable"},
	Insecure:  {"tls", "API server at %s unreachable by TLS"},
	Silent:    {"silent", "API server at %s does not answer"},
	Refused:   {"auth", "API server at %s does not know us"},
	Forbidden: {"forbidden", "API server at %s forbids us"},
	Unable:    {"error", "API server at %s answers with an error"},
	Expired:   {"expired", "API server at %s has to be read again"},
	Stale:     {"stale", "API server at %s has to be read again"},
	Brief:     {"brief", "API server at %s ends watches at once"},
}

// String is the short name.
func (c Cause) String() string { return causes[c].name }

// causeNames are the short names of all causes.
func causeNames() (all []string) {
	for _, c := range causes {
		all = append(all, c.name)
	}
	return all
}

// causeOf gives the cause of an error.
func causeOf(err error) Cause {
	if cause, ok := remote.CauseOf[Cause](err); ok {
		return cause
	}
	return Broken
}

// explain makes an error of a request fit for a log line, and finds its cause. Where ctx was ended for a reason of ours, it is
// that reason.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	err = unframed(err)
	if _, ok := remote.CauseOf[Cause](err); ok {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
		if _, ok := remote.CauseOf[Cause](cause); ok {
			return cause
		}
		return remote.Because(Silent, cause) // a deadline of ours
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return remote.Because(Broken, errors.New("the connection ended in the middle of a response"))
	}
	if isTLS(err) {
		return remote.Because(Insecure, err)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return remote.Because(Silent, err)
	}
	return remote.Because(Broken, err)
}

// isTLS reports whether a handshake failed, on either side.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	return strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// unframed takes away what package http puts around an error: the method and the URL, which the line has already.
func unframed(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// advice says what might help against a cause, in one clause; empty where there is none.
func (s *Source) advice(cause Cause) string {
	switch cause {
	case Brief:
		return "what stands between, such as a load balancer, may not let watches stand: raise its timeout for idle connections"
	case Refused:
		switch {
		case !s.cfg.Token.IsZero():
			return fmt.Sprintf("the token %s has expired, or is of another cluster", s.cfg.Token.Name())
		case !s.cfg.Cert.IsZero():
			return "the client certificate is of another cluster, or was withdrawn"
		}
		return "no token and no client certificate is given"
	case Forbidden:
		return "grant list and watch of services in the core group and of endpointslices in discovery.k8s.io"
	case Insecure:
		if !remote.IsHTTPS(s.cfg.Server) {
			return "the server may want https"
		}
	}
	return ""
}
