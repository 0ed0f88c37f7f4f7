package node

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/metrics"
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

// newSuccession is that of a process that carries clients so, with the socket in a directory of the test.
func newSuccession(t *testing.T, ctx context.Context, carrier carrier) *succession {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &succession{
		path:    filepath.Join(dir, "takeover"),
		carrier: carrier,
		words:   newKeeper(balance.NewLoadBalancerRR(false)),
		failed:  func(err error) { t.Error(err) },
		ctx:     ctx,
		serving: make(chan struct{}),
	}
}

// TestAProcessThatIsToldToStopWhileItBeginsAwaitsNoSuccessor: it would accept none, and a successor would wait for as long as this process drains.
func TestAProcessThatIsToldToStopWhileItBeginsAwaitsNoSuccessor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow := &slowCarrier{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := newSuccession(t, ctx, slow)
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

// TestAProcessThatBeginsAloneIsWaitedForUntilASuccessorFindsIt: another one that begins meanwhile would serve, too.
func TestAProcessThatBeginsAloneIsWaitedForUntilASuccessorFindsIt(t *testing.T) {
	slow := &slowCarrier{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := newSuccession(t, t.Context(), slow)
	go s.OnUpdate(registry.Batch{})
	proxytest.Receive(t, slow.begun, "the first state")
	asks, giveUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer giveUp()
	if _, err := takeover.Take(asks, s.path, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it opens its ports another process is told %v; want that it waits", err)
	}
	close(slow.goOn)
	proxytest.Receive(t, s.serving, "the first state to be in force")
	s.stopListening()
	taken, err := takeover.Take(t.Context(), s.path, nil, nil)
	if !errors.Is(err, takeover.ErrNobody) {
		t.Fatalf("once it has ended another process is told %v; want %v", err, takeover.ErrNobody)
	}
	taken.Close()
}

// TestOverridesThatHaveEndedInThePredecessorAreNotInForceAgain: the file of a process that began at the same time has them.
func TestOverridesThatHaveEndedInThePredecessorAreNotInForceAgain(t *testing.T) {
	dir := t.TempDir()
	file := keep(t, dir)
	list(t, file.balancer, "10.0.0.1:80", "10.0.0.2:80")
	drain(t, file.balancer, "10.0.0.1:80")
	drain(t, file.balancer, "10.0.0.2:80")
	if err := file.save(); err != nil {
		t.Fatal(err)
	}
	predecessor := newKeeper(balance.NewLoadBalancerRR(false))
	list(t, predecessor.balancer, "10.0.0.2:80")
	drain(t, predecessor.balancer, "10.0.0.2:80")
	item, ok, err := predecessor.item()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	node := balance.Override{Word: balance.Drain, Began: time.Now(), Until: time.Now().Add(time.Hour)}
	for _, tt := range []struct {
		name  string
		items []takeover.Item
		want  []string
	}{{"none is left", nil, []string{""}}, {"one is left", []takeover.Item{item}, []string{"", "10.0.0.2:80"}}} {
		t.Run(tt.name, func(t *testing.T) {
			words := newKeeper(balance.NewLoadBalancerRR(false))
			words.dir = dir
			words.load()
			if _, err := words.balancer.Override(registry.AddrMatch{}, node, true); err != nil { // an operator who is early
				t.Fatal(err)
			}
			if _, err := (adopter{Successor: &slowCarrier{}, words: words}).AdoptListeners(slices.Clone(tt.items)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range control.NewOverrides(words.balancer.Overrides()) {
				got = append(got, o.Endpoint)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("in force are those of %q; want %q, the node's first", got, tt.want)
			}
		})
	}
}

// A releasingProcess has nothing to hand over, and says when it has released that.
type releasingProcess struct {
	takeover.Predecessor
	released chan struct{}
}

func (releasingProcess) Listeners() ([]takeover.Item, error)                  { return nil, nil }
func (releasingProcess) Lend(bool, func([]takeover.Item) error) (bool, error) { return false, nil }
func (releasingProcess) Freeze(context.Context) (iter.Seq2[takeover.Item, error], error) {
	return func(func(takeover.Item, error) bool) {}, nil
}
func (p releasingProcess) Release() { close(p.released) }

// A servingCarrier takes over, and does what a test wants once its predecessor has its word.
type servingCarrier struct {
	carrier
	serve func()
}

func (servingCarrier) AdoptListeners([]takeover.Item) (bool, error)       { return true, nil }
func (servingCarrier) OnUpdate(registry.Batch)                            {}
func (servingCarrier) Borrow(items iter.Seq2[takeover.Item, error]) error { return drained(items) }
func (servingCarrier) Adopt(items iter.Seq2[takeover.Item, error]) error  { return drained(items) }
func (s servingCarrier) Serve()                                           { s.serve() }

func drained(items iter.Seq2[takeover.Item, error]) (err error) {
	for _, failed := range items {
		err = errors.Join(err, failed)
	}
	return err
}

// TestAProcessThatIsToldToStopWhileItTakesOverStopsOnceThatIsOver: its predecessor may have released all clients by then, which it serves and drains.
func TestAProcessThatIsToldToStopWhileItTakesOverStopsOnceThatIsOver(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	predecessor := releasingProcess{released: make(chan struct{})}
	told, stopped := make(chan struct{}), make(chan error, 1)
	s := newSuccession(t, ctx, servingCarrier{serve: func() {
		proxytest.Receive(t, predecessor.released, "the word")
		stop()
		select {
		case <-told:
			t.Error("the carrier is told to stop before it serves what the predecessor has released")
		case <-time.After(100 * time.Millisecond): // it would be told at once
		}
	}})
	s.counters = metrics.New("", "", metrics.Choice{})
	l, err := takeover.Listen(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	handedOver := make(chan bool, 1)
	go func() { handedOver <- l.Run(t.Context(), predecessor, func() []takeover.Item { return nil }) }()
	go func() {
		stopped <- s.runCarrier(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			close(told)
			return nil
		})
	}()
	s.OnUpdate(registry.Batch{})
	s.stopListening()
	if err := proxytest.Receive(t, stopped, "the end of the carrier"); err != nil {
		t.Error(err)
	}
	if !proxytest.Receive(t, handedOver, "the end of the predecessor") {
		t.Error("the predecessor has not handed over")
	}
}

// TestAServerThatRunsIsGivenNoAddress: it runs before a take-over in a process that was left alone, and then another one began.
func TestAServerThatRunsIsGivenNoAddress(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	a := adopter{Successor: &slowCarrier{}, words: newKeeper(balance.NewLoadBalancerRR(false)), answers: true}
	if alone, err := a.AdoptListeners([]takeover.Item{{Kind: kindOperators, Descriptors: ends[:1]}}); err != nil || !alone {
		t.Errorf("the carrier is given the address: %v, %v", !alone, err)
	}
	if _, err := unix.Write(ends[1], []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the descriptor is still open: %v", err)
	}
}
