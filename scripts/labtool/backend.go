package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"kubeproxy/scripts/internal/try"
)

// runBackend serves until ctx ends. Then it cuts what is open: in the lab a stopped backend is gone.
func runBackend(ctx context.Context, args []string) (err error) {
	defer try.Catch(&err)
	flags := flag.NewFlagSet("backend", flag.ContinueOnError)
	bind := flags.String("bind", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		return errUsage
	}
	name := flags.Arg(0)
	at := func(port string) string { return net.JoinHostPort(*bind, port) }

	web := try.Get(net.Listen("tcp", at("8080")))
	patient := try.Get(net.Listen("tcp", at("8081")))
	mute := try.Get(net.Listen("tcp", at("8082")))
	witness := try.Get(net.Listen("tcp", at("8083")))
	udp := try.Get(net.ListenPacket("udp", at("8080")))

	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	})}
	defer context.AfterFunc(ctx, func() {
		for _, c := range []io.Closer{server, patient, mute, witness, udp} {
			c.Close()
		}
	})()
	var parts sync.WaitGroup
	parts.Go(func() { server.Serve(web) })
	parts.Go(func() {
		accept(ctx, patient, func(conn net.Conn) {
			n, err := io.Copy(io.Discard, conn)
			if err == nil {
				fmt.Fprintf(conn, "%s read %d bytes to the end\n", name, n)
			}
		})
	})
	parts.Go(func() {
		accept(ctx, mute, func(conn net.Conn) {
			io.Copy(io.Discard, conn)
			<-ctx.Done()
		})
	})
	parts.Go(func() {
		accept(ctx, witness, func(conn net.Conn) { _ = sayWhoAsks(conn, name) }) // an error is the client's, who has gone
	})
	parts.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			_, client, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo([]byte(name), client) // lost, if the client has gone
		}
	})
	parts.Wait()
	return nil
}

// accept gives each connection to serve, on a goroutine of its own, until l is closed.
func accept(ctx context.Context, l net.Listener, serve func(net.Conn)) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			serve(conn)
		})
	}
}
