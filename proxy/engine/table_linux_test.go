package engine

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/sockopt"
)

// TestNoConnectionMakesTheTableOfDescriptorsGrow: the kernel has room for all that may be open, up to 65,536, before the first port is. That
// number is FDSize in proc_pid_status(5).
func TestNoConnectionMakesTheTableOfDescriptorsGrow(t *testing.T) {
	var b Base
	b.Init(Config{}, admit.NewOwnPorts(netip.IPv4Unspecified()))
	defer b.Cut()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "FDSize:")
	var room int
	if _, err := fmt.Sscan(rest, &room); err != nil {
		t.Fatal(err)
	}
	if want := min(sockopt.DescriptorLimit(), 1<<16); room < want {
		t.Errorf("the table has room for %d descriptors; want %d", room, want)
	}
}
