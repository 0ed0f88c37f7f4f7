package takeover

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A running process says what it has, and notes what is asked of it.
type running struct {
	listeners, live []Item
	lent            [][]Item // what each call of Lend passes on
	sessions        bool     // whether the last of them was asked for sessions

	mu    sync.Mutex
	calls []string
	ended chan string // each Thaw and Release
}

func newRunning(listeners, live []Item) *running {
	return &running{listeners: listeners, live: live, ended: make(chan string, 10)}
}

func (r *running) called(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what)
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, " ")
}

func (r *running) Listeners() ([]Item, error) { r.called("listeners"); return r.listeners, nil }
func (r *running) Lend(sessions bool, send func([]Item) error) (more bool, err error) {
	r.sessions = sessions
	if len(r.lent) == 0 {
		return false, nil
	}
	r.called("lend")
	items := r.lent[0]
	r.lent = r.lent[1:]
	return len(r.lent) > 0, send(items)
}
func (r *running) Freeze(context.Context) (iter.Seq2[Item, error], error) {
	r.called("freeze")
	return each(r.live), nil
}
func (r *running) Thaw()    { r.called("thaw"); r.ended <- "thaw" }
func (r *running) Release() { r.called("release"); r.ended <- "release" }

// A fresh process notes what it is given.
type fresh struct {
	listenersOnly bool
	calls         []string
	got           []Item
}

func (f *fresh) AdoptListeners(items []Item) (bool, error) {
	f.calls = append(f.calls, "listeners")
	f.got = append(f.got, items...)
	return !f.listenersOnly, nil
}

func (f *fresh) Adopt(items iter.Seq2[Item, error]) error { return f.take("adopt", items) }

// Borrow does not note that there was nothing more.
func (f *fresh) Borrow(items iter.Seq2[Item, error]) error {
	n := len(f.calls)
	before := len(f.got)
	err := f.take("borrow", items)
	if err == nil && len(f.got) == before {
		f.calls = f.calls[:n]
	}
	return err
}

func (f *fresh) take(how string, items iter.Seq2[Item, error]) error {
	f.calls = append(f.calls, how)
	for it, err := range items {
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		it.Body = bytes.Clone(it.Body)
		f.got = append(f.got, it)
	}
	return nil
}

func (f *fresh) Serve() { f.calls = append(f.calls, "serve") }

func (f *fresh) open() { f.calls = append(f.calls, "open") }

// descriptors makes n of them, all of one pipe.
func descriptors(t *testing.T, n int) []int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	all := []int{p[0], p[1]}
	for len(all) < n {
		d, err := unix.FcntlInt(uintptr(p[0]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	t.Cleanup(func() { closeAll(all) })
	return all[:n]
}

// place makes a path for a socket.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") // shorter than t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve has p wait for its successor until the end of the test. The channel gets whether it has handed over.
func serve(t *testing.T, p Predecessor, last ...Item) (path string, handedOver <-chan bool) {
	t.Helper()
	return serveUntil(t.Context(), t, stopWithin, p, last...)
}

// serveUntil is serve for a process that is told to stop when ctx ends, and then gives its successor so much time.
func serveUntil(ctx context.Context, t *testing.T, stopWithin time.Duration, p Predecessor, last ...Item) (path string, handedOver <-chan bool) {
	t.Helper()
	path = place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.stopWithin = stopWithin
	ctx, cancel := context.WithCancel(ctx)
	done, result := make(chan struct{}), make(chan bool, 1)
	go func() {
		defer close(done)
		result <- l.Run(ctx, p, func() []Item { return last })
		l.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return path, result
}

// A sum is what of an item does not change on its way.
func sum(items []Item) (s []string) {
	for _, it := range items {
		s = append(s, fmt.Sprint(it.Kind, len(it.Descriptors), len(it.Body), bytes.Count(it.Body, []byte{7})))
	}
	return s
}
