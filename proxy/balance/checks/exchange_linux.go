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

	"kubeproxy/registry"
)

// An exchange is the part of an attempt that is over TLS. Package tls waits, so it has a goroutine, which ends with the connection.
type exchange struct {
	conn  net.Conn // below TLS
	ended chan error
}

// secure goes on over TLS with a connection that is there.
func (a *Attempt) secure(q *Question, to netip.AddrPort) error {
	file := os.NewFile(uintptr(a.fd), "check")
	conn, err := net.FileConn(file) // with a descriptor of its own
	file.Close()
	x := &exchange{conn: conn, ended: make(chan error, 1)}
	if a.tls = x; err != nil {
		x.ended <- err
		return nil
	}
	question := *q
	secured := tls.Client(conn, a.config)
	go func() { x.ended <- converse(secured, &question, to) }()
	return nil
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
