package faults

import (
	"os"
	"strings"
	"testing"
)

// TestHealUndoesWhatAnInterruptedFaultLeft: a fault whose context ends early leaves a mess.
func TestHealUndoesWhatAnInterruptedFaultLeft(t *testing.T) {
	c := newCluster(t, 1)
	m := c.Members[0]
	writeKey(t, c)
	if err := c.EnableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.AddGRPCProxy(); err != nil {
		t.Fatal(err)
	}
	m.Way.SetNew(Blackhole)
	c.Hide()
	m.Kill()
	if err := c.Heal(); err != nil {
		t.Fatal(err)
	}
	if err := readRegistry(t, clientOf(t, c), stepTimeout); err != nil {
		t.Error(err)
	}
	if left := c.LeftBehind(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestNothingSurvivesClose: no process, no mount, no table; and with the directory, no file.
func TestNothingSurvivesClose(t *testing.T) {
	c := newCluster(t, 1)
	writeKey(t, c)
	disk := ""
	if CanMount() == nil {
		var err error
		if disk, err = c.MoveToSmallDisk(t.Context(), c.Members[0]); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	process := c.Members[0].Process
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if process.Running() == nil {
		t.Error("etcd is running")
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err == nil && disk != "" && strings.Contains(string(mounts), disk) {
		t.Error("the small disk is mounted")
	}
}
