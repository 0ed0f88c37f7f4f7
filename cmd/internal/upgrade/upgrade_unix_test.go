//go:build unix

package upgrade

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// nobody is a service manager.
type nobody struct{}

func (nobody) Reloading() {}
func (nobody) GoesOn()    {}

// TestAFirstStateIsNotAppliedOnceAReloadEndsTheProcess: else the next process would find the ports open.
func TestAFirstStateIsNotAppliedOnceAReloadEndsTheProcess(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("the first process of a container starts no successor")
	}
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	u := On("/nowhere")
	u.signals <- syscall.SIGUSR2
	if err := u.Run(t.Context(), nil, nobody{}); !errors.Is(err, errAnew) {
		t.Errorf("a reload before the first state: %v; want %v", err, errAnew)
	}
	if err := u.Begin(); !errors.Is(err, errAnew) {
		t.Errorf("the first state then: %v; want %v", err, errAnew)
	}
}
