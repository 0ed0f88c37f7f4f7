package rotation

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// TestEndpointHealthDoesNotDependOnTheTimeOfDay: times of the kernel's monotonic clock do not move when an operator or
// NTP sets the time of day.
func TestEndpointHealthDoesNotDependOnTheTimeOfDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := rotationOf(addr(1)).awake().endpoints[0]
		e.Failed(registry.TCP)
		if got := e.healthOf(registry.TCP).EjectedUntil() - monotonic.Now(); got != health.FirstEjection {
			t.Errorf("by the monotonic clock the endpoint is ejected for %v, want %v", got, health.FirstEjection)
		}
		if got := e.Status().EjectedUntil; !got.Equal(time.Now().Add(health.FirstEjection)) {
			t.Errorf("the status says until %v, want a second from now, %v", got, time.Now())
		}
	})
	files, err := filepath.Glob("../../*/*.go")
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

// TestTheStatusTellsSinceWhenAnEndpointFails: from the first failure after it answered last, however often it is tried since.
func TestTheStatusTellsSinceWhenAnEndpointFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := numbered(1, 2, 3)
		e := r.awake().endpoints[1]
		numbers := func() (failing int, examples []EndpointStatus) {
			s := r.Status()
			return s.Failing, s.Examples
		}
		if failing, _ := numbers(); failing != 0 || !e.Status().FailingSince.IsZero() {
			t.Errorf("before its first client %d endpoints fail, one since %v", failing, e.Status().FailingSince)
		}
		time.Sleep(time.Minute)
		since := time.Now()
		for range 5 {
			e.Failed(registry.TCP)
			time.Sleep(time.Minute) // by then it is half-open
		}
		if got := e.Status(); !got.FailingSince.Equal(since) || !got.EjectedUntil.IsZero() {
			t.Errorf("it fails since %v, and is ejected until %v; want since %v, and no more", got.FailingSince, got.EjectedUntil, since)
		}
		if failing, examples := numbers(); failing != 1 || len(examples) != 1 || examples[0].Addr != addr(2) {
			t.Errorf("%d endpoints fail: %v", failing, examples)
		}
		e.Answered(registry.TCP)
		if failing, _ := numbers(); failing != 0 || !e.Status().FailingSince.IsZero() {
			t.Errorf("it answers, and %d endpoints fail, it since %v", failing, e.Status().FailingSince)
		}
		time.Sleep(time.Minute)
		e.Failed(registry.UDP)
		if got := e.Status().FailingSince; !got.Equal(time.Now()) {
			t.Errorf("it fails again since %v, want now, %v", got, time.Now())
		}
	})
}

// TestTheStatusOfManyEndpointsIsBounded: a record may list tens of thousands.
func TestTheStatusOfManyEndpointsIsBounded(t *testing.T) {
	r := rotationOfSize(200)
	for _, e := range r.Endpoints() {
		e.Failed(registry.TCP)
	}
	if s := r.Status(); s.Endpoints != 200 || s.Failing != 200 || len(s.Examples) != maxExamples {
		t.Errorf("of 200 endpoints that fail it shows %v", s)
	}
}

// isEjected reports whether the endpoint is ejected just now because of failed attempts.
func (e *Endpoint) isEjected(protocol registry.Protocol) bool {
	h := e.healthOf(protocol)
	return h != nil && h.EjectedUntil() != 0 && monotonic.Now() < h.EjectedUntil()
}
