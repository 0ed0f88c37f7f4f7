//go:build linux

package measure

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is also a process that the tests start: it burns processor time on threads that end.
func TestMain(m *testing.M) {
	if os.Getenv("MEASURE_BURN") != "" {
		burn()
		return
	}
	os.Exit(m.Run())
}

// burn works for a moment on each of four threads that end, and on one that stays; then it says so
// and waits.
func burn() {
	done := make(chan bool)
	for range 4 {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			spin(30 * time.Millisecond)
			done <- true
		}()
		<-done
	}
	spin(30 * time.Millisecond)
	fmt.Println("burnt")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test has read its clocks
}

func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// schedstatOf adds up what the schedstat files of a process's living threads say.
func schedstatOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no schedstat: %v", pid, err)
	}
	var total time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		total += time.Duration(ns)
	}
	return total
}

func TestProcessorTimeCountsThreadsThatHaveEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "MEASURE_BURN=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	got, err := CPUOf([]int{cmd.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	living := schedstatOf(t, cmd.Process.Pid)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	afterwards := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // what wait4(2) says of the whole life
	t.Logf("clock %v; schedstat of living threads %v; rusage %v", got, living, afterwards)
	if got <= living {
		t.Errorf("the clock says %v, the living threads alone %v: nothing of the ended ones", got, living)
	}
	if off := math.Abs((afterwards - got).Seconds()); off > 0.02 {
		t.Errorf("the clock says %v, rusage %v", got, afterwards)
	}
}

func TestProcessorTimeOfTheLivingIsSchedstats(t *testing.T) {
	spin(20 * time.Millisecond)
	before := schedstatOf(t, os.Getpid())
	got, err := CPUOf([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	// Threads of the tests' process do not end; the two readings lie a moment apart.
	if after := schedstatOf(t, os.Getpid()); got < before-5*time.Millisecond || got > after+5*time.Millisecond {
		t.Errorf("the clock says %v, schedstat %v before and %v after", got, before, after)
	}
}

func TestBusyTimeIsWhatWasNeitherIdleNorStolen(t *testing.T) {
	const text = "cpu  100 0 50 1000 20 0 7 30 0 0\ncpu0 50 0 25 500 10 0 3 15 0 0\ncpu1 50 0 25 500 10 0 4 15 0 0\nintr 1 2 3\n"
	before, err := parseStat(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := (MachineTime{2, 10200 * time.Millisecond, 300 * time.Millisecond}); before != want {
		t.Fatalf("parseStat: got %+v; want %+v", before, want)
	}
	after := before
	after.idle += 600 * time.Millisecond
	after.stole += 100 * time.Millisecond
	if got, want := BusyBetween(before, after, time.Second), 1300*time.Millisecond; got != want {
		t.Errorf("busy for %v of a second of two processors; want %v", got, want)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7 8 9", "cpu 1 2 3 x 5 6 7 8 9"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) did not complain", bad)
		}
	}
	if now, err := ReadMachineTime(); err != nil || now.processors < 1 || now.idle <= 0 {
		t.Errorf("of this machine: %+v, %v", now, err)
	}
}

func TestAnonymousMemoryIsRssAnon(t *testing.T) {
	const status = "Name:\tx\nVmRSS:\t 1024 kB\nRssAnon:\t    2048 kB\nRssFile:\t 5 kB\n"
	for field, want := range map[string]float64{"RssAnon": 2 << 20, "VmRSS": 1 << 20} {
		if got, err := parseStatus(status, field); got != want || err != nil {
			t.Errorf("%s: got %v, %v; want %v", field, got, err, want)
		}
	}
	if _, err := parseStatus("Name:\tx\n", "RssAnon"); err == nil {
		t.Error("a status without it did not lead to an error")
	}
	us := []int{os.Getpid()}
	before, err := AnonymousMemory(us)
	if err != nil {
		t.Fatal(err)
	}
	// Not of Go's heap: there the race detector has memory of its own for it.
	block, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(block)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := AnonymousMemory(us)
	if more := after - before; err != nil || more < 60<<20 || more > 80<<20 {
		t.Errorf("64 MiB more are %.0f bytes (%v)", more, err)
	}
}

func TestFamilyIsEverybodyWhoDescends(t *testing.T) {
	pid, parent, err := parseParent("4711 (a) R 1 (b)) S 42 4711 4711 0 -1")
	if pid != 4711 || parent != 42 || err != nil {
		t.Errorf("got %d, child of %d, %v; want 4711, child of 42", pid, parent, err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	members, err := Family(os.Getpid())
	if err != nil || len(members) != 2 || members[0] != os.Getpid() || members[1] != child.Process.Pid {
		t.Errorf("family: %v, %v; want us and %d", members, err, child.Process.Pid)
	}
}
