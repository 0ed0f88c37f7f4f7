package ring

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Ring belongs to one goroutine, which is locked to the thread that has called Enable: the kernel takes entries from no other.
type Ring struct {
	fd      int
	enterFD uintptr // fd, or its number among those that the thread has registered
	flags   uintptr // of enter

	shared  []byte // both queues
	entries []entry
	inPlace []Completion // the kernel's

	head, tail         *uint32 // of the entries: what the kernel has taken, what we have written
	completed, noticed *uint32 // of the completions: what the kernel has written, what we have read
	next               uint32  // where the next entry goes; tail is this once they are submitted
	sends              int     // of the entries that are not submitted: they complete at once

	timeout unix.Timespec // of the present wait
	arg     getEvents     // likewise
}

// An entry is struct io_uring_sqe of linux/io_uring.h.
type entry struct {
	op, flags   uint8
	priority    uint16
	fd          int32
	_           uint64
	address     uint64
	length      uint32
	opFlags     uint32
	data        uint64
	group       uint16 // of buffers
	personality uint16
	_           [20]byte
}

// A Completion says what came of an entry: struct io_uring_cqe.
type Completion struct {
	Data   uint64 // of the entry
	Result int32  // negative: an errno
	flags  uint32
}

// Errno is why an entry failed; 0: it did not.
func (c *Completion) Errno() unix.Errno { return unix.Errno(max(0, -c.Result)) }

// Of linux/io_uring.h.
const (
	opPollAdd     = 6
	opAsyncCancel = 14
	opClose       = 19
	opSend        = 26
	opReceive     = 27

	bufferSelect = 1 << 5 // of an entry
	skipSuccess  = 1 << 6

	pollFirst = 1 << 0 // of a receive's priority

	cancelAll = 1 << 0 // of a cancellation
	cancelAny = 1 << 2

	setupClamp        = 1 << 4
	setupCQSize       = 1 << 3
	setupDisabled     = 1 << 6
	setupSubmitAll    = 1 << 7
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	enterGetEvents  = 1 << 0
	enterExtArg     = 1 << 3
	enterRegistered = 1 << 4

	registerEnable  = 12
	registerRingFDs = 20
	registerBuffers = 22

	offsetEntries = 0x10000000 // of mmap

	completionBuffer = 1 << 0 // in the flags of a completion: it has taken a buffer
	bufferShift      = 16
)

// params is struct io_uring_params. What stands in sq and cq are offsets into the memory of the queues.
type params struct {
	entries, completions, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	sq                                                   struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// New makes a ring that holds so many entries until they are submitted, and twice as many completions. It fails on kernels that lack what the
// ring needs, and where seccomp or kernel.io_uring_disabled forbids it.
func New(size int) (*Ring, error) {
	p := params{completions: uint32(2 * size),
		flags: setupCQSize | setupClamp | setupDisabled | setupSubmitAll | setupSingleIssuer | setupDeferTaskrun}
	fd, _, errno := syscall.RawSyscall(unix.SYS_IO_URING_SETUP, uintptr(size), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	r := &Ring{fd: int(fd), enterFD: fd, flags: enterGetEvents}
	if err := r.share(&p); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// share maps the queues into memory.
func (r *Ring) share(p *params) (err error) {
	length := max(p.sq.array+p.entries*4, p.cq.cqes+p.completions*uint32(unsafe.Sizeof(Completion{})))
	if r.shared, err = unix.Mmap(r.fd, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	entries, err := unix.Mmap(r.fd, offsetEntries, int(p.entries)*int(unsafe.Sizeof(entry{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	at := func(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.shared[offset])) }
	r.entries = unsafe.Slice((*entry)(unsafe.Pointer(&entries[0])), p.entries)
	r.head, r.tail = at(p.sq.head), at(p.sq.tail)
	r.inPlace = unsafe.Slice((*Completion)(unsafe.Pointer(at(p.cq.cqes))), p.completions)
	r.completed, r.noticed = at(p.cq.tail), at(p.cq.head)
	for i := range p.entries { // each place has its own entry
		*at(p.sq.array + 4*i) = i
	}
	return nil
}

// Enable has the kernel take entries from the calling thread, and from it alone.
func (r *Ring) Enable() error {
	if _, err := r.register(registerEnable, nil, 0); err != nil {
		return err
	}
	// A registered descriptor is not looked up at each call.
	registered := struct {
		offset, _ uint32
		fd        uint64
	}{^uint32(0), 0, uint64(r.fd)}
	if _, err := r.register(registerRingFDs, unsafe.Pointer(&registered), 1); err == nil {
		r.enterFD, r.flags = uintptr(registered.offset), r.flags|enterRegistered
	}
	return nil
}

func (r *Ring) register(op uintptr, what unsafe.Pointer, n uintptr) (uintptr, error) {
	got, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(what), n, 0, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("io_uring_register", errno)
	}
	return got, nil
}

// Close ends the ring. The kernel cancels what is under way.
func (r *Ring) Close() {
	_ = unix.Close(r.fd)
	if r.shared != nil {
		_ = unix.Munmap(r.shared)
	}
	if r.entries != nil {
		_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(&r.entries[0])), len(r.entries)*int(unsafe.Sizeof(entry{}))))
	}
	*r = Ring{fd: -1}
}

// add writes one more entry. If there is no room, it submits the others first.
func (r *Ring) add(e entry) {
	for r.Unsubmitted() == len(r.entries) {
		r.Submit()
	}
	r.entries[r.next&uint32(len(r.entries)-1)] = e
	r.next++
}

// Unsubmitted is how many entries the kernel has not taken yet.
func (r *Ring) Unsubmitted() int { return int(r.next - atomic.LoadUint32(r.head)) }

// UnsubmittedSends is how many of those are sends.
func (r *Ring) UnsubmittedSends() int { return r.sends }

// Submit gives the kernel what was added. It does not wait.
func (r *Ring) Submit() {
	n, _ := r.pass()
	_, _, _ = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFD, n, 0, r.flags, 0, 0)
}

// pass lets the kernel see what was added. It returns how many entries that are, and how many completions come at once and one more. What
// the kernel does not take, for want of memory, is submitted the next time.
func (r *Ring) pass() (n, least uintptr) {
	atomic.StoreUint32(r.tail, r.next)
	least = uintptr(r.sends + 1)
	r.sends = 0
	return uintptr(r.Unsubmitted()), least
}

// Wait submits, and waits for a completion that says something new, for so long at most: those of sends do not end the wait, and come with the
// next one. So one that was cut short is seen late if nothing else happens: who sends waits for a short time only. A signal ends it. told says that the scheduler is to know of the wait: else the thread keeps a processor of the runtime's.
func (r *Ring) Wait(atMost time.Duration, told bool) {
	if atMost <= 0 || r.hasCompletions() {
		r.Submit()
		return
	}
	n, least := r.pass()
	r.timeout = unix.NsecToTimespec(int64(atMost))
	r.arg = getEvents{timeout: uint64(uintptr(unsafe.Pointer(&r.timeout)))}
	if told {
		_, _, _ = syscall.Syscall6(unix.SYS_IO_URING_ENTER, r.enterFD, n, least, r.flags|enterExtArg, uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(r.arg))
	} else {
		_, _, _ = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFD, n, least, r.flags|enterExtArg, uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(r.arg))
	}
}

// getEvents is struct io_uring_getevents_arg, with no mask of signals.
type getEvents struct {
	_       uint64
	_, _    uint32
	timeout uint64
}

func (r *Ring) hasCompletions() bool { return atomic.LoadUint32(r.completed) != *r.noticed }

// Completions moves completions into room, and returns how many.
func (r *Ring) Completions(room []Completion) int {
	at := *r.noticed
	n := min(len(room), int(atomic.LoadUint32(r.completed)-at))
	for i := range n {
		room[i] = r.inPlace[(at+uint32(i))&uint32(len(r.inPlace)-1)]
	}
	atomic.StoreUint32(r.noticed, at+uint32(n))
	return n
}
