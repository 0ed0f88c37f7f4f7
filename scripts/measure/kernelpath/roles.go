//go:build linux

package kernelpath

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

const (
	clientRole  = "kernel-client"
	backendRole = "kernel-backend"
	clients     = 16
)

// Roles are what the processes on the other machines do.
var Roles = map[string]measure.Role{clientRole: runClient, backendRole: runBackend}

// runBackend echoes what it gets at the echo port, once it was sent a line, until standard input ends.
func runBackend([]string) error {
	lines := bufio.NewScanner(os.Stdin)
	if !lines.Scan() {
		return lines.Err()
	}
	failed, err := load.StartEcho(netip.AddrPortFrom(netip.IPv4Unspecified(), echoPort))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	ended := make(chan error, 1)
	go func() {
		lines.Scan()
		ended <- lines.Err()
	}()
	select {
	case err = <-failed:
	case err = <-ended:
	}
	return err
}

// runClient sends loads. A line names the load, its target and how long it lasts; the answer is a [measure.Sample].
func runClient([]string) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text, err := conduct(strings.Fields(lines.Text()))
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	return nil
}

func conduct(order []string) ([]byte, error) {
	if len(order) != 3 {
		return nil, fmt.Errorf("%q: want a load, a target and a time", order)
	}
	at, err := netip.ParseAddrPort(order[1])
	if err != nil {
		return nil, err
	}
	window, err := time.ParseDuration(order[2])
	if err != nil {
		return nil, err
	}
	var l load.Load
	switch to := []netip.AddrPort{at}; order[0] {
	case "echo":
		l = load.NewEcho(unix.SOCK_STREAM, to, clients)
	case "udp":
		l = load.NewEcho(unix.SOCK_DGRAM, to, clients)
	default:
		c := load.NewConnect(to, clients, false)
		c.Anywhere = true
		l = c
	}
	var s measure.Sample
	w, err := load.Conduct(context.Background(), nil, window/4, window, l)
	score := l.Score()
	if err != nil {
		s.Fail(1, err.Error())
	} else {
		s.Values = map[string]float64{"rate": w.Done[0] / w.Elapsed.Seconds(), "p99": score.Latency.Quantile(0.99)}
	}
	if score.Failed > 0 {
		s.Fail(score.Failed, score.Why)
	}
	return json.Marshal(s)
}
