package main

import (
	"os/exec"
	"testing"
	"time"
)

func TestLostPacketsAreNotAcknowledged(t *testing.T) {
	if err := canLosePackets(); err != nil {
		t.Skipf("this machine cannot lose packets: %v", err)
	}
	c, _ := begin(t, 1)
	w := watchThrough(t, c)
	client := throughFaultProxies(t, c)
	if err := reads(t, client, patience); err != nil {
		t.Fatal(err)
	}
	addr := c.members[0].faultProxy.addr

	var err error
	if c.loss, err = losePackets(packetsFrom(addr)); err != nil {
		t.Fatal(err)
	}
	lost := write(t, c)
	w.hearsNothing(t)
	if err := reads(t, client, 500*time.Millisecond); err == nil {
		t.Error("a read was answered while no packet arrived")
	}
	table := c.loss.table
	c.packetsArrive()
	w.hears(t, lost) // the kernel sends it again
	if err := exec.Command("nft", "list", "table", "inet", table).Run(); err == nil {
		t.Error("the table is still there")
	}
}
