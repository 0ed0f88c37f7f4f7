package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A slowCarrier applies its first state for as long as a test wants.
type slowCarrier struct {
	carrier
	begun, goOn chan struct{}
}

func (s *slowCarrier) Inherit(map[registry.ListenerID]int) {}

func (s *slowCarrier) AdoptListeners(items []takeover.Item) (bool, error) {
	return len(items) == 0, nil
}

func (s *slowCarrier) OnUpdate(registry.Batch) {
	close(s.begun)
	<-s.goOn
}

// TestAProcessThatIsToldToStopWhileItBeginsAwaitsNoSuccessor: it would accept none, and a successor would wait for as long as this process drains.
func TestAProcessThatIsToldToStopWhileItBeginsAwaitsNoSuccessor(t *testing.T) {
	dir, err := os.MkdirTemp("", "t") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow := &slowCarrier{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := &succession{
		path:    filepath.Join(dir, "takeover"),
		carrier: slow,
		words:   newKeeper(balance.NewLoadBalancerRR(false)),
		failed:  func(err error) { t.Error(err) },
		ctx:     ctx,
		serving: make(chan struct{}),
	}
	go s.OnUpdate(registry.Batch{})
	proxytest.Receive(t, slow.begun, "the first state")
	cancel()
	if err := s.run(ctx, func() {}); err != nil {
		t.Error(err)
	}
	close(slow.goOn)
	proxytest.Receive(t, s.serving, "the first state to be in force")
	asks, giveUp := context.WithTimeout(t.Context(), proxytest.Patience)
	defer giveUp()
	if err := takeover.Waits(asks, s.path); !errors.Is(err, takeover.ErrNobody) {
		t.Errorf("a successor that asks then: %v; want %v", err, takeover.ErrNobody)
	}
}

// TestAServerThatRunsIsGivenNoAddress: it runs before a take-over in a process that was left alone, and then another one began.
func TestAServerThatRunsIsGivenNoAddress(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	a := adopter{Successor: &slowCarrier{}, answers: true}
	if alone, err := a.AdoptListeners([]takeover.Item{{Kind: kindOperators, Descriptors: ends[:1]}}); err != nil || !alone {
		t.Errorf("the carrier is given the address: %v, %v", !alone, err)
	}
	if _, err := unix.Write(ends[1], []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the descriptor is still open: %v", err)
	}
}
