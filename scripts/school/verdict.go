package main

import (
	"fmt"
	"io"

	"kubeproxy/scripts/school/store"
)

// print writes the verdict on a stage. How to repeat the failed step is told with program, which is the command line that was given.
func (r *result) print(out io.Writer, s *stage, program string, timeline, hints, held bool) {
	switch r.Verdict {
	case passed:
		fmt.Fprintf(out, "pass  %2d. %s (%.2f s)\n", r.Stage, r.Title, r.Seconds)
	case skipped:
		fmt.Fprintf(out, "skip  %2d. %s: %s\n", r.Stage, r.Title, r.Why)
	default:
		fmt.Fprintf(out, "FAIL  %2d. %s (%.2f s)\n", r.Stage, r.Title, r.Seconds)
	}
	if timeline {
		for _, line := range r.Timeline {
			fmt.Fprintln(out, "     ", line)
		}
	}
	if r.Verdict != failed {
		return
	}
	fmt.Fprintf(out, "\n  promise   %s\n", s.promise)
	if r.Change != "" && r.Change != r.Step {
		fmt.Fprintf(out, "  after     %s\n", r.Change)
	}
	fmt.Fprintf(out, "  step      %s\n  at        %.3f s\n  expected  %s\n  seen      %s\n", r.Step, r.At, r.Expected, r.Seen)
	if len(r.Output) > 0 {
		fmt.Fprintln(out, "\n  The last lines of your program:")
		for _, line := range r.Output {
			fmt.Fprintln(out, "    |", line)
		}
	}
	if hints {
		fmt.Fprintf(out, "\n  A first attempt often %s.\n  It has happened: %s.\n", s.naive, s.history)
	}
	if held {
		fmt.Fprintf(out, "\n  Repeat the step by hand, in another terminal:\n    %s\n", r.ByHand)
	} else {
		fmt.Fprintf(out, "\n  Repeat the step by hand: school -hold %s %d keeps the program and its endpoints running. It says which ports it uses. Here it was\n    %s\n",
			store.Quoted(program), r.Stage, r.ByHand)
	}
	if r.Seed != 0 {
		fmt.Fprintf(out, "\n  The same again, as far as timing allows: school -seed=%d %s %d\n", r.Seed, store.Quoted(program), r.Stage)
	}
	fmt.Fprintf(out, "\n  school text %d explains the stage.\n\n", r.Stage)
}
