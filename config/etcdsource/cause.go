package etcdsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A Cause is why a session ended, or why none can begin. They are kept apart because each asks something
// else of an operator: to start etcd, to mend a certificate, to grant a permission, or nothing at all.
type Cause int

// The causes.
const (
	Broken     Cause = iota // there is no connection, or it broke
	Insecure                // no connection that TLS approves of: a wrong certificate
	Silent                  // no answer in time
	Refused                 // etcd says no: user, password, token or permission
	Leaderless              // a member has no leader, and so nothing to say
	Unable                  // etcd answers with another error
	Cancelled               // etcd ended the watch
	Compacted               // etcd ended the watch, because what it had to tell next was compacted
	Stale                   // etcd has gone on, and the watch has not told
	Behind                  // the watch is more revisions behind than it may be
	WentBack                // etcd has lost what it had, or another one answers
	NumCauses               // how many there are
)

// The words for each cause: a short name without blanks, which metrics spell the same, and the beginning of a log line about etcd at
// some address.
var causes = [NumCauses]struct{ name, line string }{
	Broken:     {"broken", "etcd at %v unreachable"},
	Insecure:   {"tls", "etcd at %v unreachable by TLS"},
	Silent:     {"silent", "etcd at %v does not answer"},
	Refused:    {"auth", "etcd at %v refuses us"},
	Leaderless: {"no_leader", "etcd at %v has no leader"},
	Unable:     {"error", "etcd at %v answers with an error"},
	Cancelled:  {"cancelled", "etcd at %v has to be read again"},
	Compacted:  {"compacted", "etcd at %v has to be read again"},
	Stale:      {"stale", "etcd at %v has to be read again"},
	Behind:     {"behind", "etcd at %v has to be read again"},
	WentBack:   {"went_back", "etcd at %v is not what it was"},
}

// String is the short name.
func (c Cause) String() string { return causes[c].name }

// causeOf gives the cause of an error.
func causeOf(err error) Cause {
	if cause, ok := remote.CauseOf[Cause](err); ok {
		return cause
	}
	return Broken
}

// explain makes an error of a call fit for a log line, and finds its cause: etcd's or gRPC's message
// without its frame and, where ctx was ended for a reason of ours, that reason.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return remote.Because(Silent, cause) // a deadline of ours
	}
	err = rpctypes.Error(err) // etcd's own errors become comparable
	if etcds, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return remote.Because(causeOfEtcds(etcds), err)
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	err = errors.New(unframed(s.Message()))
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return remote.Because(Refused, err)
	case codes.DeadlineExceeded: // etcd has given up a little before us
		return remote.Because(Silent, errors.New("no answer in time"))
	case codes.Unimplemented, codes.ResourceExhausted, codes.FailedPrecondition, codes.InvalidArgument:
		return remote.Because(Unable, err)
	}
	switch text := err.Error(); {
	case isUnanswered(text):
		return remote.Because(Silent, errors.New("the connection was accepted, and no answer came in time"))
	case strings.Contains(text, "server preface: ") && strings.Contains(text, "http2: "):
		return remote.Because(Unable, err) // it speaks, but not HTTP/2
	case hasHungUp(text):
		return remote.Because(Insecure, err)
	}
	if strings.Contains(err.Error(), "handshake failed") || strings.Contains(err.Error(), "tls: ") {
		return remote.Because(Insecure, err)
	}
	return remote.Because(Broken, err)
}

// isUnanswered reports whether gRPC has given up a connection on which nothing came before its first request: it closes the connection, or
// ends the handshake. So it is with a process that hangs.
func isUnanswered(text string) bool {
	return (strings.Contains(text, "server preface: ") || strings.Contains(text, "handshake failed: ")) &&
		(strings.Contains(text, "use of closed network connection") || strings.Contains(text, "i/o timeout") || strings.Contains(text, "deadline exceeded"))
}

// hasHungUp reports whether the server has ended a connection upon its first bytes.
func hasHungUp(text string) bool {
	return strings.Contains(text, "server preface: EOF") || strings.Contains(text, "server preface: ") && strings.Contains(text, "reset by peer")
}

// What etcd says when it does not want us, and when it has no leader.
var (
	refusals = []error{rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty,
		rpctypes.ErrUserNotFound, rpctypes.ErrAuthOldRevision, rpctypes.ErrPermissionNotGranted}
	leaderless = []error{rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout,
		rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrUnhealthy}
)

func causeOfEtcds(err rpctypes.EtcdError) Cause {
	switch {
	case slices.Contains(refusals, error(err)):
		return Refused
	case slices.Contains(leaderless, error(err)):
		return Leaderless
	case err == rpctypes.ErrStopped:
		return Broken
	}
	return Unable
}

// causeOfCancel gives the cause of a watch's cancellation, and the reason without its frame. The reason is
// an error of etcd's written out: etcd looks at permissions when a watch is created.
func causeOfCancel(reason string) (Cause, string) {
	if _, message, framed := strings.Cut(reason, " desc = "); framed {
		reason = message
	}
	etcds, ok := errors.AsType[rpctypes.EtcdError](rpctypes.Error(errors.New(reason)))
	if !ok {
		return Cancelled, reason
	}
	if cause := causeOfEtcds(etcds); cause != Unable {
		return cause, reason
	}
	return Cancelled, reason
}

// unframed takes away what gRPC puts around the message of a connection that cannot be made.
func unframed(message string) string {
	for _, frame := range []string{"connection error: desc = ", "last connection error: "} {
		if _, inner, ok := strings.Cut(message, frame); ok {
			message = inner
		}
	}
	message = strings.Trim(message, `"`)
	for _, frame := range []string{"transport: ", "Error while dialing: ", "Error while dialing "} {
		message = strings.TrimPrefix(message, frame)
	}
	return message
}

// advice says what to do about an error, as far as its text tells; empty if it does not.
func (c *dialer) advice(cause Cause, reason string) string {
	encrypted := etcdconfig.IsHTTPS(c.Endpoints[0])
	switch {
	case strings.Contains(reason, "server preface: ") && strings.Contains(reason, "http2: "):
		return "this is not the gRPC of etcd 3: an etcd 2 or another HTTP server answers at this address"
	case hasHungUp(reason) && !encrypted:
		return "the server hung up on a connection without TLS: if it is an etcd with TLS, its URL has to begin with https://"
	case strings.Contains(reason, "first record does not look like a TLS handshake"), strings.Contains(reason, "handshake failed: EOF"):
		return "the server broke off the TLS handshake: if it is an etcd without TLS, its URL has to begin with http://"
	case cause != Refused || c.Username != "":
		return ""
	case encrypted && c.certificateName() != "":
		return fmt.Sprintf("no user is set: etcd takes the common name of the certificate, %s, for the user; etcd needs that user, with a role that may read %s",
			registry.Quote(c.certificateName()), registry.Prefix)
	}
	return "no user is set"
}

// certificateName returns the common name of the client's certificate; empty if there is none.
func (c *dialer) certificateName() string {
	if c.TLS == nil || c.TLS.GetClientCertificate == nil {
		return ""
	}
	cert, err := c.TLS.GetClientCertificate(new(tls.CertificateRequestInfo))
	if err != nil || cert == nil || cert.Leaf == nil {
		return ""
	}
	return cert.Leaf.Subject.CommonName
}
