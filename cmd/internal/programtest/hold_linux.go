package programtest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hold stops one thread of the program for as long as the kernel would need if a system call did not return: the first thread that
// makes this call is kept at its entry until release is called. The other threads go on. Hold returns once a thread is
// held. Until then it calls provoke again and again, which has the program make the call.
//
// The thread is held by ptrace(2), which works for a child in every container that does not forbid it; else the test is skipped.
func (p *Program) Hold(t testing.TB, call uint64, provoke func()) (release func()) {
	t.Helper()
	held, let, over := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // a traced thread obeys only the thread that traces it
		defer runtime.UnlockOSThread()
		tr := tracer{pid: p.Pid(), call: call, traced: make(map[int]bool)}
		thread, err := tr.catch(provoke)
		tr.detachAllBut(thread)
		held <- err
		if err == nil {
			<-let
			tr.detach(thread, 0)
		}
	}()
	release = sync.OnceFunc(func() {
		close(let)
		<-over
	})
	t.Cleanup(release)
	switch err := <-held; err {
	case nil:
	case unix.EPERM, unix.ENOSYS:
		t.Skipf("no thread of a child can be traced here: %v", err)
	default:
		t.Fatalf("hold a thread in system call %d: %v", call, err)
	}
	return release
}

// A tracer looks at each system call that the threads of a process make.
type tracer struct {
	pid    int
	call   uint64
	traced map[int]bool // by the number of the thread
}

// catch returns the thread that makes the call first. It stands at the entry of the call.
func (tr *tracer) catch(provoke func()) (thread int, err error) {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); {
		if err := tr.attach(); err != nil {
			return 0, err
		}
		provoke()
		for range 100 { // then there may be threads that are new
			for thread := range tr.traced {
				if tr.look(thread) {
					return thread, nil
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	return 0, fmt.Errorf("no thread has made it in %v", Patience)
}

// attach begins to trace the threads that are not traced yet.
func (tr *tracer) attach() error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", tr.pid))
	if err != nil {
		return err
	}
	for _, entry := range threads {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil || tr.traced[thread] {
			continue
		}
		switch err := unix.PtraceSeize(thread); err {
		case nil:
			tr.traced[thread] = true
			_ = unix.PtraceInterrupt(thread) // fails only if the thread has ended
		case unix.ESRCH: // it has ended
		default:
			return err
		}
	}
	return nil
}

// look lets a thread go on that has stopped on its way, and reports whether it stands at the entry of the call.
func (tr *tracer) look(thread int) bool {
	var status unix.WaitStatus
	switch stopped, err := unix.Wait4(thread, &status, unix.WNOHANG|unix.WALL, nil); {
	case stopped == 0 && err == nil:
		return false // it runs
	case err != nil || !status.Stopped():
		delete(tr.traced, thread) // it has ended
		return false
	}
	if status.StopSignal() == inCall && tr.enters(thread) {
		return true
	}
	if status.TrapCause() == unix.PTRACE_EVENT_STOP {
		_ = unix.PtraceSetOptions(thread, unix.PTRACE_O_TRACESYSGOOD) // it is ours, and stands
	}
	_ = unix.PtraceSyscall(thread, int(signalOf(status))) // likewise
	return false
}

// inCall is the signal of a stop at the entry or the exit of a system call, with PTRACE_O_TRACESYSGOOD.
const inCall = unix.SIGTRAP | 0x80

// signalOf is the signal that a stopped thread was sent and has not received, 0 for none. The Go runtime counts on its own signals.
func signalOf(status unix.WaitStatus) unix.Signal {
	if status.StopSignal() == inCall || status.TrapCause() == unix.PTRACE_EVENT_STOP {
		return 0
	}
	return status.StopSignal()
}

// enters reports whether a thread that stands at a system call is at its entry, and it is the call that is looked for.
func (tr *tracer) enters(thread int) bool {
	var info struct { // the head of struct ptrace_syscall_info
		op     uint8
		_      [3]uint8
		_      uint32
		_, _   uint64
		number uint64
	}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	return errno == 0 && info.op == unix.PTRACE_SYSCALL_INFO_ENTRY && info.number == tr.call
}

// detachAllBut lets all threads go on untraced, except one that stands.
func (tr *tracer) detachAllBut(held int) {
	for thread := range tr.traced {
		if thread == held {
			continue
		}
		_ = unix.PtraceInterrupt(thread) // fails if it has ended
		var status unix.WaitStatus
		if _, err := unix.Wait4(thread, &status, unix.WALL, nil); err == nil && status.Stopped() {
			tr.detach(thread, signalOf(status))
		}
	}
}

// detach lets a thread that stands go on untraced, and gives it a signal if there is one.
func (tr *tracer) detach(thread int, sig unix.Signal) {
	_, _, _ = unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(thread), 0, uintptr(sig), 0, 0) // fails if it has been killed
}
