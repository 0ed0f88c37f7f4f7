package main

import (
	"fmt"
	"runtime"
	"time"
)

// A result is what the school says of one stage.
type result struct {
	Stage    int      `json:"stage"`
	Title    string   `json:"title"`
	Verdict  string   `json:"verdict"` // passed, failed or skipped
	Seconds  float64  `json:"seconds"`
	Why      string   `json:"why,omitempty"`      // it was skipped
	Step     string   `json:"step,omitempty"`     // at which it failed
	At       float64  `json:"at,omitempty"`       // the second of the failure
	Expected string   `json:"expected,omitempty"` // at this step
	Seen     string   `json:"seen,omitempty"`     // instead
	ByHand   string   `json:"by_hand,omitempty"`  // repeats the step
	Timeline []string `json:"timeline"`
	Output   []string `json:"output,omitempty"` // the last lines of the program
}

const passed, failed, skipped = "passed", "failed", "skipped"

// A course is a program on its way through the stages.
type course struct {
	command []string // of the program
	records func(overEtcd bool) (records, error)
	hold    func(result) // of a failed stage: called before the program and its endpoints end; nil: they end at once
}

// run runs one stage. An error is the school's own.
func (c *course) run(s *stage) (result, error) {
	if s.only != "" && s.only != runtime.GOOS {
		return result{Stage: s.number, Title: s.title, Verdict: skipped, Timeline: []string{}, Why: "it can be judged on " + s.only + " only"}, nil
	}
	records, err := c.records(s.etcd)
	if err != nil {
		return result{}, err
	}
	defer records.close()
	t := &trial{records: records, command: c.command, began: time.Now()}
	defer t.close()
	over := make(chan struct{})
	go func() { // so that the judge can end the trial from within any call
		defer close(over)
		s.judge(t)
	}()
	select {
	case <-over:
	case <-time.After(s.takes):
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

// result is the verdict on a trial that is over.
func (t *trial) result(s *stage) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := result{Stage: s.number, Title: s.title, Verdict: passed, Seconds: seconds(time.Since(t.began)), Timeline: t.timeline}
	if f := t.failure; f != nil {
		r.Verdict, r.Step, r.At, r.Expected, r.Seen, r.ByHand = failed, f.step, seconds(f.at), f.expected, f.seen, f.byHand
		if t.program != nil {
			r.Output = t.program.lastLines(8)
		}
	}
	return r
}

// seconds are rounded to milliseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
