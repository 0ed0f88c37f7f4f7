package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestLostPacketsAreNotAcknowledged(t *testing.T) {
	if err := CanLosePackets(); err != nil {
		t.Skipf("this machine cannot lose packets: %v", err)
	}
	c := newCluster(t, 1)
	w := openWatch(t, c)
	client := clientOf(t, c)
	if err := readRegistry(t, client, stepTimeout); err != nil {
		t.Fatal(err)
	}
	addr := c.Members[0].Way.Addr

	if err := c.LosePackets(PacketsFrom(addr)); err != nil {
		t.Fatal(err)
	}
	lost := writeKey(t, c)
	w.ReceivesNothing(t)
	if err := readRegistry(t, client, 500*time.Millisecond); err == nil {
		t.Error("a read was answered while no packet arrived")
	}
	c.EndLoss()
	w.Receives(t, lost) // the kernel sends it again
	tables, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		t.Fatal(err)
	}
	if ours := fmt.Sprintf("chaos_%d_", os.Getpid()); strings.Contains(string(tables), ours) {
		t.Errorf("a table of ours is still there: %s", tables)
	}
}
