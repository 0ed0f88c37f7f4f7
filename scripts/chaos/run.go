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

	"kubeproxy/internal/backoff"
	"kubeproxy/scripts/chaos/faults"
	"kubeproxy/scripts/chaos/proxynode"
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
func (s settings) faults() (able []faults.Fault, unable []string) {
	for _, f := range faults.All() {
		if chosen := s.chosen(); chosen != nil && !slices.Contains(chosen, f.Name) || s.smoke && !f.IsSmall() || !f.Fits(s.members) {
			continue
		}
		if err := f.Able(s.login); err != nil {
			unable = append(unable, fmt.Sprintf("%s: %v", f.Name, err))
			continue
		}
		able = append(able, f)
	}
	return able, unable
}

// run starts the clients and injects faults in turns, each turn every fault once, in random order.
func (x *experiment) run(ctx context.Context, able []faults.Fault) error {
	if _, err := x.quiet(ctx); err != nil {
		return x.over(fmt.Errorf("before the first fault: %w", err))
	}
	stop := x.clients.Start(ctx, x.settings.connections, x.settings.flows, x.settings.seed)
	defer stop()
	r := rand.New(rand.NewPCG(x.settings.seed, 2))
	began := time.Now()
	for n := 0; ctx.Err() == nil; {
		for _, i := range r.Perm(len(able)) {
			if n >= len(able) && time.Since(began) > x.settings.duration {
				break // every fault has had its turn
			}
			n++
			backoff.Sleep(ctx, time.Duration(200+r.IntN(800))*time.Millisecond)
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
func (x *experiment) suffer(ctx context.Context, f faults.Fault, r *rand.Rand) error {
	x.results.begin(f.Name)
	defer x.results.begin("")
	x.Logf("%s", f.Name)
	x.stalls.worst() // from here on
	if !f.Silent && x.cluster.HasLossyConnection() {
		x.Logf("a connection is still open that lost bytes in an earlier fault: the source may notice its end by silence only")
		f.Silent = true
	}
	began := time.Now()
	if err := f.Inject(ctx, faults.Target{Cluster: x.cluster, Harness: x}, r); err != nil {
		return fmt.Errorf("the harness could not inject %q: %w", f.Name, errors.Join(err, x.cluster.Heal()))
	}
	took := time.Since(began)
	since, err := x.answers(ctx)
	if err != nil {
		return err
	}
	at, err := x.quiet(ctx)
	if err != nil {
		return fmt.Errorf("after %s: %w", f.Name, err)
	}
	recovery := max(0, at.Sub(since))
	late := ""
	if !x.results.recovered(f, recovery) {
		late = ", TOO LATE"
	}
	if stall := x.stalls.worst(); stall > 100*time.Millisecond {
		late += fmt.Sprintf("; the machine was busy elsewhere for %v", stall.Round(time.Millisecond))
	}
	x.Logf("%s: took %v, recovered in %v%s", f.Name, took.Round(time.Millisecond), recovery.Round(time.Millisecond), late)
	return nil
}

// over handles what ended the run: a wrong state is counted, anything else is an error of the harness.
func (x *experiment) over(err error) error {
	if w := (wrongState{}); errors.As(err, &w) {
		x.results.wrong(err)
		x.Logf("WRONG STATE: %v", err)
		return nil
	}
	return err
}

// sum reports how much was done and compared.
func (x *experiment) sum(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v: %d transactions, %s over %d eras\n", x.settings.seed, time.Since(x.began).Round(time.Second),
		x.results.written(), x.recorder.Sum(), x.history.Eras())
	fmt.Fprintf(&b, "%d connections and %d datagrams answered, the slowest after %v\n",
		x.clients.Answered.Load(), x.clients.Exchanges.Load(), x.clients.Slowest().Round(time.Millisecond))
	fmt.Fprintf(&b, "the machine was busy elsewhere for up to %v\n", x.stalls.ever().Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if a, err := x.node.Ask(ctx, proxynode.Query{Brief: true}); err == nil {
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
