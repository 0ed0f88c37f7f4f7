package faults

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

// A packetLoss drops packets on loopback. Packets that match are not delivered, so nothing is acknowledged, connections to the address
// get no answer to their SYN, and the kernel retransmits. When the loss ends, connections that still exist continue.
//
// It is a table of nftables with rules for single ports of 127.0.0.1. An nft process that waits for input owns the table, and the
// kernel removes it when that process ends, however it ends.
type packetLoss struct {
	table string
	nft   *process.Process
	stdin io.Closer
}

// PacketsTo and PacketsFrom are the nftables matches for packets to and from an address of this machine.
func PacketsTo(addr string) string   { return "tcp dport " + portOf(addr) }
func PacketsFrom(addr string) string { return "tcp sport " + portOf(addr) }

// PacketsBetween matches the packets of one connection that go from one address to the other.
func PacketsBetween(from, to string) string { return PacketsFrom(from) + " " + PacketsTo(to) }

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// tables counts the tables that were made, so that no two have one name.
var tables atomic.Int64

// LosePackets drops the matching packets until EndLoss.
func (c *Cluster) LosePackets(matches ...string) (err error) {
	c.loss, err = losePackets(matches...)
	return err
}

func losePackets(matches ...string) (*packetLoss, error) {
	var rules strings.Builder
	for _, match := range matches {
		// As they arrive: if the firewall dropped them as they leave, the sender would get an error.
		fmt.Fprintf(&rules, `iifname "lo" %s drop; `, match)
	}
	var said strings.Builder
	p := &packetLoss{table: fmt.Sprintf("chaos_%d_%d", os.Getpid(), tables.Add(1))}
	nft := exec.Command("nft", "-i")
	nft.Stdout, nft.Stderr = &said, &said
	stdin, err := nft.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if p.nft, err = process.Run("nft", nft); err != nil {
		return nil, err
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

// end delivers packets again.
func (p *packetLoss) end() {
	_ = p.stdin.Close()
	p.nft.Kill()
}

// CanLosePackets returns why this machine cannot lose packets; nil: it can. It tries once, with a port that carries nothing.
var CanLosePackets = sync.OnceValue(func() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("there is no nft")
	}
	p, err := losePackets(PacketsTo(":1"))
	if err != nil {
		return err
	}
	p.end()
	return nil
})
