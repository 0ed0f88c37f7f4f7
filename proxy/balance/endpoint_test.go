package balance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// TestEndpointHealthDoesNotDependOnTheTimeOfDay: times of the kernel's monotonic clock do not move when an operator or
// NTP sets the time of day.
func TestEndpointHealthDoesNotDependOnTheTimeOfDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := rotationOf(addr(1)).awake().endpoints[0]
		e.Failed(registry.TCP)
		if got := e.downUntil(registry.TCP) - monotonic.Now(); got != firstDown {
			t.Errorf("by the monotonic clock the endpoint is ejected for %v, want %v", got, firstDown)
		}
		if got := e.Status().DownUntil; !got.Equal(time.Now().Add(firstDown)) {
			t.Errorf("the status says until %v, want a second from now, %v", got, time.Now())
		}
	})
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && regexp.MustCompile(`\.Unix(Nano|Milli|Micro)?\(\)`).Match(text) {
			t.Errorf("%s reads the time of day as a number, which is not monotonic", file)
		}
	}
}
