package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// runChaos is the run: everything is started, faults come one after the other until the time is up, and
// the table is printed. An error says that something was not as it must be.
func runChaos(ctx context.Context, s settings, out io.Writer) error {
	able, unable := s.faults()
	if len(able) == 0 {
		return errors.New("none of these faults can be injected here")
	}
	fmt.Fprintf(out, "this run again, as far as timing allows: -members=%d -duration=%v -seed=%d -rate=%v -connections=%d%s\n",
		s.members, s.duration, s.seed, s.rate, s.connections, s.extra())
	x, err := newExperiment(ctx, s, out)
	if err != nil {
		return err
	}
	defer x.close()
	err = x.run(ctx, able)
	sum := x.sum(ctx)
	x.results.print(out, able)
	for _, u := range unable {
		fmt.Fprintf(out, "not injected: %s\n", u)
	}
	fmt.Fprint(out, sum)
	if failures := x.results.failures(); len(failures) > 0 {
		return fmt.Errorf("%d failures, with seed %d:\n%s", len(failures), s.seed, strings.Join(failures, "\n"))
	}
	return err
}

// extra are the flags that are not as they are by default.
func (s settings) extra() string {
	text := ""
	if s.smoke {
		text += " -smoke"
	}
	if !s.login {
		text += " -login=false"
	}
	if s.only != "" {
		text += " -only=" + s.only
	}
	return text
}

// faults are those that the settings ask for: which can be injected here, and which cannot, with the reason.
func (s settings) faults() (able []fault, unable []string) {
	for _, f := range faults {
		chosen := s.chosen()
		switch {
		case chosen != nil && !slices.Contains(chosen, f.name), s.smoke && !f.small:
			continue
		case f.members != 0 && f.members != s.members:
			continue
		case f.login && !s.login:
			unable = append(unable, f.name+": the proxy has no user")
			continue
		}
		if f.able != nil {
			if err := f.able(); err != nil {
				unable = append(unable, fmt.Sprintf("%s: %v", f.name, err))
				continue
			}
		}
		able = append(able, f)
	}
	return able, unable
}

// run lets the clients loose and injects faults in turns, each turn every fault once, in random order.
func (x *experiment) run(ctx context.Context, able []fault) error {
	if _, err := x.quiet(ctx); err != nil {
		return x.over(fmt.Errorf("before the first fault: %w", err))
	}
	stop := x.startClients(ctx)
	defer stop()
	r := rand.New(rand.NewPCG(x.settings.seed, 2))
	began := time.Now()
	for n := 0; ctx.Err() == nil; {
		for _, i := range r.Perm(len(able)) {
			if n >= len(able) && time.Since(began) > x.settings.duration {
				break // every fault has had its turn
			}
			n++
			_ = sleep(ctx, time.Duration(200+r.IntN(800))*time.Millisecond) // if it ends early, so does the loop
			// Each fault has random numbers of its own: how many it draws does not change what follows.
			if err := x.suffer(ctx, able[i], rand.New(rand.NewPCG(x.settings.seed, uint64(2+n)))); err != nil {
				return x.over(err)
			}
			if x.settings.first && len(x.results.failures()) > 0 {
				return nil
			}
		}
		if x.settings.smoke || time.Since(began) > x.settings.duration {
			break
		}
	}
	stop()
	_, err := x.quiet(ctx)
	return x.over(err)
}

// suffer injects one fault, and measures the recovery.
func (x *experiment) suffer(ctx context.Context, f fault, r *rand.Rand) error {
	x.results.begin(f.name)
	defer x.results.begin("")
	x.logf("%s", f.name)
	x.stalls.worst() // from here on
	if !f.silent && x.cluster.crippled() {
		x.logf("a connection still stands that lost bytes before: when it ends, only silence may tell")
		f.silent = true
	}
	began := time.Now()
	if err := f.inject(ctx, x.cluster, r); err != nil {
		return fmt.Errorf("the harness could not inject %q: %w", f.name, errors.Join(err, x.cluster.heal()))
	}
	took := time.Since(began)
	since, err := x.answers(ctx)
	if err != nil {
		return err
	}
	at, err := x.quiet(ctx)
	if err != nil {
		return fmt.Errorf("after %s: %w", f.name, err)
	}
	recovery := max(0, at.Sub(since))
	late := ""
	if !x.results.recovered(f, recovery) {
		late = ", TOO LATE"
	}
	if stall := x.stalls.worst(); stall > 100*time.Millisecond {
		late += fmt.Sprintf("; the machine was busy elsewhere for %v", stall.Round(time.Millisecond))
	}
	x.logf("%s: took %v, recovered in %v%s", f.name, took.Round(time.Millisecond), recovery.Round(time.Millisecond), late)
	return nil
}

// over takes in what ended the run: a wrong state is counted, anything else is an error of the harness.
func (x *experiment) over(err error) error {
	if w := (wrongState{}); errors.As(err, &w) {
		x.results.wrong(err)
		x.logf("WRONG STATE: %v", err)
		return nil
	}
	return err
}

// startClients starts the clients of the steady services. The func that it returns stops them, and
// waits until the last has its answer.
func (x *experiment) startClients(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	tcp, udp := x.steady[:steadyTCP], x.steady[steadyTCP:]
	x.clients.wg.Go(func() {
		x.clients.connect(ctx, tcp, x.settings.connections, rand.New(rand.NewPCG(x.settings.seed, 1<<32)))
	})
	for i := range x.settings.flows {
		x.clients.wg.Go(func() { x.clients.talk(ctx, udp, rand.New(rand.NewPCG(x.settings.seed, 1<<32+1+uint64(i)))) })
	}
	return func() {
		cancel()
		x.clients.wg.Wait()
	}
}

// sum tells how much was done and compared.
func (x *experiment) sum(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v: %d transactions, %s over %d eras\n", x.settings.seed, time.Since(x.began).Round(time.Second),
		x.results.written(), x.recorder.Sum(), x.history.Eras())
	fmt.Fprintf(&b, "%d connections and %d datagrams answered, the slowest after %v\n",
		x.clients.answered.Load(), x.clients.exchanges.Load(), time.Duration(x.clients.slowest.Load()).Round(time.Millisecond))
	fmt.Fprintf(&b, "the machine was busy elsewhere for up to %v\n", x.stalls.ever().Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if a, err := x.node.ask(ctx, order{Brief: true}); err == nil {
		fmt.Fprintf(&b, "the proxy: %d sessions, %d resyncs, %d divergences, %d MiB, %d descriptors, %d goroutines",
			a.Source.Sessions, a.Source.Resyncs, a.Source.Divergences, a.Resident>>20, a.Descriptors, a.Goroutines)
	} else {
		fmt.Fprintf(&b, "the proxy: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(x.settings.dir, "node.log")); err == nil {
		fmt.Fprintf(&b, ", %d lines of log", bytes.Count(text, []byte("\n")))
	}
	b.WriteString("\n")
	return b.String()
}
