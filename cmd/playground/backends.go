package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// A backend is one of the small servers behind a service. Whatever it is asked, it answers with its
// name, so that one sees which of them was chosen.
type backend struct {
	name  string
	addr  string
	serve func(ctx context.Context) error // until ctx ends; then it returns nil
}

// openBackend opens a backend that answers one kind of call, on a free port of 127.0.0.1.
func openBackend(kind, name string) (*backend, error) {
	const addr = "127.0.0.1:0"
	if kind == "udp" {
		conn, err := net.ListenPacket("udp", addr)
		if err != nil {
			return nil, fmt.Errorf("backend %s: %w", name, err)
		}
		return &backend{name, conn.LocalAddr().String(), func(ctx context.Context) error { return serveUDP(ctx, conn, name) }}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	serve := serveTCP
	if kind == "http" {
		serve = serveHTTP
	}
	return &backend{name, l.Addr().String(), func(ctx context.Context) error { return serve(ctx, l, name) }}, nil
}

// serveHTTP answers each request.
func serveHTTP(ctx context.Context, l net.Listener, name string) error {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s answers %s %s\n", name, r.Method, r.URL.Path)
	})}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	return unlessOver(ctx, server.Serve(l))
}

// serveTCP answers each line of each connection.
func serveTCP(ctx context.Context, l net.Listener, name string) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			return unlessOver(ctx, err)
		}
		conns.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := fmt.Fprintf(conn, "%s heard %q\n", name, lines.Text()); err != nil {
					return // the client has gone
				}
			}
		})
	}
}

// serveUDP answers each datagram.
func serveUDP(ctx context.Context, conn net.PacketConn, name string) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	buf := make([]byte, 64<<10)
	for {
		n, client, err := conn.ReadFrom(buf)
		if err != nil {
			return unlessOver(ctx, err)
		}
		if _, err := conn.WriteTo(fmt.Appendf(nil, "%s heard %q\n", name, buf[:n]), client); err != nil {
			return unlessOver(ctx, err)
		}
	}
}

// unlessOver gives err, unless it is only how a closed socket says that ctx has ended.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
