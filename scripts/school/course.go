package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

// A result is what the school says of one stage.
type result struct {
	Stage    int      `json:"stage"`
	Title    string   `json:"title"`
	Verdict  string   `json:"verdict"` // passed, failed or skipped
	Seconds  float64  `json:"seconds"`
	Why      string   `json:"why,omitempty"`      // it was skipped
	Step     string   `json:"step,omitempty"`     // at which it failed
	Change   string   `json:"change,omitempty"`   // the last one that the judge had made before
	At       float64  `json:"at,omitempty"`       // the second of the failure
	Expected string   `json:"expected,omitempty"` // at this step
	Seen     string   `json:"seen,omitempty"`     // instead
	ByHand   string   `json:"by_hand,omitempty"`  // repeats the step
	Seed     uint64   `json:"seed,omitempty"`     // has the exam do the same again
	Timeline []string `json:"timeline"`
	Output   []string `json:"output,omitempty"` // the last lines of the program
}

const passed, failed, skipped = "passed", "failed", "skipped"

// A course is a program on its way through the stages.
type course struct {
	command  []string               // of the program
	registry string                 // the kind of store that stages have; those about etcd have an etcd in place of files
	etcd     func() (string, error) // finds the program of an etcd
	exam     time.Duration          // how long the exam lasts
	seed     uint64                 // of the exam; 0: a new one
	hold     func(result)           // of a failed stage: called before the program and its endpoints end; nil: they end at once
}

// run runs one stage. An error is the school's own.
func (c *course) run(s *stage) (result, error) {
	why, kind := s.impossible(c.registry)
	var records store.Store
	if why == "" {
		var err error
		records, err = store.New(kind, c.etcd, lowPort, highPort)
		switch {
		case errors.Is(err, store.ErrNoEtcd) && c.registry != kind: // nobody has asked for etcd
			why = err.Error()
		case err != nil:
			return result{}, err
		}
	}
	if why != "" {
		return result{Stage: s.number, Title: s.title, Verdict: skipped, Timeline: []string{}, Why: why}, nil
	}
	defer records.Close()
	t := &trial{records: records, command: c.command, bind: "127.0.0.1", exam: c.exam, seed: cmp.Or(c.seed, rand.Uint64()>>32), began: time.Now()}
	defer t.close()
	over := make(chan struct{})
	go func() { // so that the judge can end the trial from within any call
		defer close(over)
		s.judge(t)
	}()
	select {
	case <-over:
	case <-time.After(s.takes + c.exam): // only one stage takes as long as the exam
		t.decide(&failure{expected: fmt.Sprintf("an end of the stage within %v", s.takes), seen: "the step goes on"})
	}
	r := t.result(s)
	if t.failure != nil {
		if t.failure.broken {
			return r, fmt.Errorf("stage %d, at %q: %s", s.number, r.Step, r.Seen)
		}
		if c.hold != nil {
			c.hold(r)
		}
	}
	return r, nil
}

// impossible says why a stage cannot be judged here, if it cannot, and which kind of store it has otherwise.
func (s *stage) impossible(registry string) (why, kind string) {
	kind = registry
	if s.etcd && kind == store.InFiles {
		kind = store.InEtcd
	}
	switch {
	case s.only != "" && s.only != runtime.GOOS:
		return "it can be judged on " + s.only + " only", kind
	case s.ipv6 && !peer.HasIPv6():
		return "this machine does not have the address ::1", kind
	case s.transactions && kind == store.InEtcd2:
		return "etcd 2 has no transactions", kind
	}
	return "", kind
}

// result is the verdict on a trial that is over.
func (t *trial) result(s *stage) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := result{Stage: s.number, Title: s.title, Verdict: passed, Seconds: seconds(time.Since(t.began)), Timeline: t.timeline}
	if s.seeded {
		r.Seed = t.seed
	}
	if f := t.failure; f != nil {
		r.Verdict, r.Step, r.Change, r.At, r.Expected, r.Seen, r.ByHand = failed, f.step, f.change, seconds(f.at), f.expected, f.seen, f.byHand
		if t.program != nil {
			r.Output = t.program.lastLines(8)
		}
	}
	return r
}

// seconds are rounded to milliseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
