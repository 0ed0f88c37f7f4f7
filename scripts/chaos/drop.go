package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/process"
)

// A packetLoss is a true loss of packets on loopback: nothing that matches is delivered, so nothing is
// acknowledged, connections to the address get no answer to their SYN, and the kernels retransmit. When
// it ends, connections that still exist go on where they were.
//
// It is a table of nftables that names single ports of 127.0.0.1, and that its owner, an nft process
// which waits for more, takes along when it ends: the kernel removes it even if everybody is killed.
type packetLoss struct {
	table string
	nft   *exec.Cmd
	stdin io.Closer
}

// The packets that go to or come from an address of this machine, as nft says it.
func packetsTo(addr string) string   { return "tcp dport " + portOf(addr) }
func packetsFrom(addr string) string { return "tcp sport " + portOf(addr) }

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// tables counts the tables that were made, so that no two have one name.
var tables atomic.Int64

// losePackets has the matching packets lost from now on.
func losePackets(matches ...string) (*packetLoss, error) {
	var rules strings.Builder
	for _, match := range matches {
		// On the way in: a sender whose own firewall refuses the packet would be told.
		fmt.Fprintf(&rules, `iifname "lo" %s drop; `, match)
	}
	var said strings.Builder
	p := &packetLoss{
		table: fmt.Sprintf("chaos_%d_%d", os.Getpid(), tables.Add(1)),
		nft:   exec.Command("nft", "-i"),
	}
	process.TieToParent(p.nft)
	p.nft.Stdout, p.nft.Stderr = &said, &said
	stdin, err := p.nft.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.nft.Start(); err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	_, err = fmt.Fprintf(stdin, "table inet %s { flags owner; chain in { type filter hook input priority 0; %s}; }\n", p.table, &rules)
	for deadline := time.Now().Add(5 * time.Second); err == nil; time.Sleep(5 * time.Millisecond) {
		out, _ := exec.Command("nft", "list", "table", "inet", p.table).Output() // it may not be there yet
		if strings.Count(string(out), " drop") == len(matches) {
			return p, nil
		}
		if time.Now().After(deadline) {
			err = errors.New("no table")
		}
	}
	p.end()
	return nil, fmt.Errorf("nft: %w: %s", err, said.String())
}

// end lets packets arrive again.
func (p *packetLoss) end() {
	_ = p.stdin.Close()
	_ = p.nft.Process.Kill()
	_ = p.nft.Wait() // it was killed
}

// canLosePackets tries, once, on a port that carries nothing.
var canLosePackets = sync.OnceValue(func() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("there is no nft")
	}
	p, err := losePackets(packetsTo(":1"))
	if err != nil {
		return err
	}
	p.end()
	return nil
})
