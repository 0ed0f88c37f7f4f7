package sockopt

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTheTableOfDescriptorsHasRoomForAll: FDSize is how many the kernel has room for (proc_pid_status(5)).
func TestTheTableOfDescriptorsHasRoomForAll(t *testing.T) {
	PrepareDescriptors()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "FDSize:")
	var room int
	if _, err := fmt.Sscan(rest, &room); err != nil {
		t.Fatal(err)
	}
	if want := min(DescriptorLimit(), mostPrepared); room < want {
		t.Errorf("the table has room for %d descriptors; want %d", room, want)
	}
}
