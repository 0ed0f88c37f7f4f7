package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"kubeproxy/scripts/chaos/cluster"
	"kubeproxy/scripts/chaos/clustertest"
)

func TestLostPacketsAreNotAcknowledged(t *testing.T) {
	if err := cluster.CanLosePackets(); err != nil {
		t.Skipf("this machine cannot lose packets: %v", err)
	}
	c := clustertest.Start(t, 1)
	w := clustertest.Open(t, c)
	client := clustertest.Client(t, c)
	if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
		t.Fatal(err)
	}
	addr := c.Members[0].Way.Addr

	if err := c.LosePackets(cluster.PacketsFrom(addr)); err != nil {
		t.Fatal(err)
	}
	lost := clustertest.Write(t, c)
	w.ReceivesNothing(t)
	if err := clustertest.Read(t, client, 500*time.Millisecond); err == nil {
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
