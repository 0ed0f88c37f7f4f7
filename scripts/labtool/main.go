// Labtool plays the parts of the lab that are neither etcd nor kube-proxy: backends that answer with
// their name, and clients that print their result in a word or two.
//
//	labtool backend [-bind ADDRESS] NAME
//	labtool call [-n N] [-sum] [-time] [-pause D] [-timeout D] [-bind ADDRESS] [-from PORT] [-claim ADDRESS] http|udp ADDRESS...
//	labtool ask [-hold] [-timeout D] ADDRESS TEXT
//	labtool get URL
//	labtool conntrack
//	labtool idle
//
// A backend opens five ports: 8080/tcp answers HTTP requests, 8080/udp answers datagrams, 8081/tcp
// reads to the end before it answers, 8082/tcp reads to the end and never answers, and 8083/tcp answers
// HTTP requests with the address of the client, which a PROXY header may name.
//
// Call calls each address N times, each time as a new client. -sum counts equal answers instead of
// printing them in order, -time says how long each took. -bind calls from this address. -from sends
// datagrams from this port, so that several calls are one client. -claim has an HTTP request begin with a
// PROXY header that names this address as the client. Ask says TEXT to port 8081 or 8082, then that this is all (unless
// -hold), and waits for the other side to finish too. Get prints a page. Conntrack prints the connections
// that the kernel keeps track of (Linux). Idle waits until it is stopped: docker can run
// commands only in a container in which something runs.
//
// It exits with 0 when every call was answered, with 1 when one was not, and with 2 when the command
// line makes no sense.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := do(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, `Usage:
  labtool backend [-bind ADDRESS] NAME
  labtool call [-n N] [-sum] [-time] [-pause D] [-timeout D] [-bind ADDRESS] [-from PORT] [-claim ADDRESS] http|udp ADDRESS...
  labtool ask [-hold] [-timeout D] ADDRESS TEXT
  labtool get URL
  labtool conntrack
  labtool idle
`)
		os.Exit(2)
	case errors.Is(err, errUnanswered):
		os.Exit(1) // the calls have been reported already
	default:
		fmt.Fprintln(os.Stderr, "labtool:", err)
		os.Exit(1)
	}
}

// do does what the command line asks for.
func do(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "backend":
		return runBackend(ctx, args[1:])
	case "call":
		return runCall(ctx, args[1:])
	case "ask":
		return runAsk(ctx, args[1:])
	case "get":
		return runGet(ctx, args[1:])
	case "conntrack":
		return runConntrack(args[1:])
	case "idle":
		<-ctx.Done()
		return nil
	}
	return errUsage
}
