package checks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// Authorities verify the certificates of endpoints.
type Authorities struct{ pool func() *x509.CertPool }

// Trust returns the authorities that a function returns. It is asked every now and then.
func Trust(pool func() *x509.CertPool) *Authorities { return &Authorities{pool} }

// A trusted pool is what the authorities were when they were asked last.
type trusted struct {
	pool *x509.CertPool
	at   time.Duration
}

// trustedFor is for how long authorities are used before they are asked for again.
const trustedFor = 10 * time.Second

// A tlsConfig is how an attempt speaks TLS; nil: it does not.
type tlsConfig = *tls.Config

// tlsConfigOf returns how a target is asked over TLS.
func (c *Checker) tlsConfigOf(t *Target) tlsConfig {
	if t.Question.TLS == registry.CheckPlain {
		return nil
	}
	if now := monotonic.Now(); c.Roots != nil && (c.trusted.pool == nil || now-c.trusted.at > trustedFor) {
		c.trusted = trusted{c.Roots.pool(), now}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: c.trusted.pool, ServerName: t.serverName(t.to),
		InsecureSkipVerify: t.Question.TLS == registry.CheckUnverified, // the record says so
	}
}

// An exchange is the part of an attempt that is over TLS. Package tls waits, so it has a goroutine, which ends with the connection.
type exchange struct {
	conn  net.Conn // below TLS
	ended chan error
}

// startTLS begins the exchange over TLS on the connection of the attempt.
func (a *Attempt) startTLS(q *Question, to netip.AddrPort) {
	file := os.NewFile(uintptr(a.fd), "check")
	conn, err := net.FileConn(file) // with a descriptor of its own
	file.Close()
	x := &exchange{conn: conn, ended: make(chan error, 1)}
	if a.tls = x; err != nil {
		x.ended <- err
		return
	}
	question, client := *q, tls.Client(conn, a.config)
	go func() { x.ended <- converse(client, &question, to) }()
}

// converse asks over TLS, and says what the answer means.
func converse(conn *tls.Conn, q *Question, to netip.AddrPort) error {
	if err := conn.Handshake(); err != nil || q.Path == "" {
		return tlsError(err)
	}
	if _, err := conn.Write([]byte(q.request(to))); err != nil {
		return tlsError(err)
	}
	var answer []byte
	buffer := make([]byte, 4<<10)
	for {
		n, err := conn.Read(buffer)
		answer = append(answer, buffer[:n]...)
		if n > 0 {
			if done, verdict := q.judge(answer); done {
				return verdict
			}
		}
		if err != nil {
			return tlsError(err)
		}
	}
}

// tlsError is what went wrong, without the address, and without text that the endpoint has made up: the names in its certificate.
func tlsError(err error) error {
	if err == nil {
		return nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op != "remote error" {
		return op.Err
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return errNotTLS
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return errAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return errOtherName
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return errExpired
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errClosed
	}
	return fmt.Errorf("TLS: %s", registry.Quote(err.Error()))
}

// close ends the exchange.
func (x *exchange) close() {
	if x.conn != nil {
		_ = x.conn.Close() // whatever it returns, the descriptor is free
	}
}

// hasEnded reports whether the exchange has ended.
func (x *exchange) hasEnded() bool { return len(x.ended) > 0 }

// end returns how the exchange has ended, if it has.
func (x *exchange) end() (done bool, err error) {
	select {
	case err = <-x.ended:
		return true, err
	default:
		return false, nil
	}
}
