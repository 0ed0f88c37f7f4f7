package etcdv2source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"kubeproxy/config/remote"
	"net/http"
	"slices"
	"strings"
)

// A cause is why a session ended, or why none can begin. The names are those of package etcdsource.
type cause int

const (
	broken     cause = iota // there is no connection, or it broke
	insecure                // no connection that TLS approves of
	silent                  // no answer in time
	refused                 // etcd says no: user or password
	leaderless              // a member has no leader
	unable                  // another error, or no etcd 2
	stale                   // etcd has gone on, and the watch has not told
	wentBack                // etcd has lost what it had
	numCauses
)

// The words for each cause: the short name, and the beginning of a log line about etcd at some address.
var causes = [numCauses]struct{ name, line string }{
	broken:     {"broken", "etcd 2 at %v unreachable"},
	insecure:   {"tls", "etcd 2 at %v unreachable by TLS"},
	silent:     {"silent", "etcd 2 at %v does not answer"},
	refused:    {"auth", "etcd 2 at %v refuses us"},
	leaderless: {"no_leader", "etcd 2 at %v has no leader"},
	unable:     {"error", "etcd 2 at %v answers with an error"},
	stale:      {"stale", "etcd 2 at %v has to be read again"},
	wentBack:   {"went_back", "etcd 2 at %v is not what it was"},
}

// Causes lists the short names of why etcd cannot be read.
func Causes() (names []string) {
	for _, c := range causes {
		names = append(names, c.name)
	}
	return names
}

// causeOf gives the cause of an error.
func causeOf(err error) cause {
	if cause, ok := remote.CauseOf[cause](err); ok {
		return cause
	}
	if e, ok := errors.AsType[*apiError](err); ok {
		switch {
		case e.Code == codeUnauthorized, e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
			return refused
		case slices.Contains([]int{codeRaftInternal, codeNoLeader}, e.Code):
			return leaderless
		}
		return unable
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return insecure
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return insecure
	}
	switch text := err.Error(); {
	case strings.Contains(text, "tls: "), strings.Contains(text, "server gave HTTP response to HTTPS client"), strings.Contains(text, "x509: "):
		return insecure
	case strings.Contains(text, "malformed HTTP"):
		return unable
	}
	return broken
}
