package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAProcessOutlivesTheThreadOfItsCaller: a thread to which a goroutine was bound, as those of some loops are, ends with it.
func TestAProcessOutlivesTheThreadOfItsCaller(t *testing.T) {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, thread := make(chan error, 1), 0
	var start func()
	start = func() {
		runtime.LockOSThread()
		if thread = unix.Gettid(); thread == os.Getpid() { // this thread does not end; while it is taken, a goroutine gets another
			var another sync.WaitGroup
			another.Go(start)
			another.Wait()
			runtime.UnlockOSThread()
			return
		}
		started <- StartTied(cat)
	}
	go start()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cat.Wait() // it may have been killed
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprint("/proc/self/task/", thread)); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not end")
		}
	}
	var word string
	if _, err := fmt.Fprintln(in, "alive"); err != nil {
		t.Error(err)
	}
	if _, err := fmt.Fscanln(out, &word); word != "alive" {
		t.Errorf("after the thread has ended, the process says %q, %v", word, err)
	}
}
