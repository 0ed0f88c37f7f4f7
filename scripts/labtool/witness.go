package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/try"
)

// sayWhoAsks answers an HTTP request with the name of the backend and the address of the client.
func sayWhoAsks(conn net.Conn, name string) (err error) {
	defer try.Catch(&err)
	r := bufio.NewReaderSize(conn, proxyproto.MaxHeader)
	client := try.Get(clientOf(conn, r))
	status, answer := "200 OK", "is asked by"
	if _, err := http.ReadRequest(r); err != nil {
		status, answer = "400 Bad Request", "cannot read the request of"
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.0 %s\r\n\r\n%s %s %v\n", status, name, answer, client)
	return err
}

// clientOf returns the client of a connection: whom the PROXY header names with which the connection begins, or who connected, if there is no
// header. It accepts a header from any client. A server that is no drill accepts those of its proxies only.
func clientOf(conn net.Conn, r *bufio.Reader) (netip.Addr, error) {
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	for {
		if _, err := r.Peek(r.Buffered() + 1); err != nil { // more has to come
			return peer, err
		}
		b, _ := r.Peek(r.Buffered()) // it has them
		header, length, err := proxyproto.Parse(b, registry.TCP)
		switch {
		case errors.Is(err, proxyproto.ErrNoHeader):
			return peer, nil
		case err != nil:
			return peer, err
		case length == 0:
			continue
		}
		if header.Source.IsValid() {
			peer = header.Source.Addr()
		}
		_, err = r.Discard(length)
		return peer, err
	}
}
