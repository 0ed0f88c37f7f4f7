// Command school judges a kube-proxy that somebody builds, in any language, as a black box: stage by stage, from a port for one record to
// a stop that drains.
//
//	school [flags] PROGRAM [STAGE...]    judge the program; without stages from the first until one fails
//	school report PROGRAM [STAGE...]     judge it in all stages, and write the verdicts as JSON
//	school next PROGRAM [STAGE...]       judge it, and print the text of the first stage that it fails
//	school list                          list the stages
//	school text STAGE                    print the text of a stage; school -hint text STAGE: with what is folded in it
//	school starter LANGUAGE              print a program to begin with: python, node, go or shell
//
// PROGRAM is one word for the shell: a path, or a path and arguments with blanks between them. The school starts it with
// -registry_dir=DIR -bind_address=127.0.0.1, and with REGISTRY_DIR and BIND_ADDRESS in the environment. Stages about etcd have an etcd of their own,
// and -etcd_servers=URL in place of the directory. With -registry all stages have: an etcd, or an etcd 2 for programs as old as that.
//
// The exit status is 0 if all stages that were run have passed, 1 if one has failed, and 2 if the school could not judge.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	texts "kubeproxy/docs/school"
	"kubeproxy/scripts/school/store"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// A call is a command line.
type call struct {
	timeline, hints, all, hold bool
	registry                   string
	exam                       time.Duration
	seed                       uint64
	program                    string
	stages                     []*stage // nil: all
	stdout                     io.Writer
}

// run is main, with its exit status.
func run(args []string, stdout, stderr io.Writer) int {
	c := call{stdout: stdout}
	flags := flag.NewFlagSet("school", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&c.timeline, "v", false, "print the timeline of each stage")
	flags.BoolVar(&c.hints, "hint", false, "say of a failed stage what first attempts often do, and who did it; print texts with their hints")
	flags.BoolVar(&c.all, "all", false, "go on after a failed stage")
	flags.BoolVar(&c.hold, "hold", false, "keep a failed stage as it is until Enter or Ctrl-C: program, records and endpoints")
	flags.StringVar(&c.registry, "registry", store.InFiles, "where stages have their records: files (stages about etcd: an etcd), etcd, or etcd2 (its v2 API)")
	flags.DurationVar(&c.exam, "exam", time.Minute, "how long the exam lasts")
	flags.Uint64Var(&c.seed, "seed", 0, "has the exam do what it did with this `seed`; 0: a new one")
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: school [flags] PROGRAM [STAGE...]\n       school [flags] report|next PROGRAM [STAGE...]\n"+
			"       school list | [-hint] text STAGE | starter python|node|go|shell\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	ok, err := c.do(flags.Args())
	switch {
	case errors.Is(err, errUsage):
		flags.Usage()
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "school:", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}

var errUsage = errors.New("usage")

// do does what a command line says, and reports whether the program has passed.
func (c *call) do(args []string) (ok bool, err error) {
	if len(args) == 0 {
		return false, errUsage
	}
	word, rest := args[0], args[1:]
	switch {
	case word == "list" && len(rest) == 0:
		for _, s := range stages {
			fmt.Fprintf(c.stdout, "%2d  %-28s %s\n", s.number, s.title, s.promise)
		}
		return true, nil
	case word == "text" && len(rest) == 1:
		chosen, err := parseStages(rest)
		if err != nil {
			return false, err
		}
		return true, c.printText(chosen[0])
	case word == "starter" && len(rest) == 1:
		text, err := texts.Starter(rest[0])
		if err != nil {
			return false, err
		}
		_, err = c.stdout.Write(text)
		return true, err
	case word == "report" || word == "next":
		if len(rest) == 0 {
			return false, errUsage
		}
		args = rest
	case word == "list" || word == "text" || word == "starter":
		return false, errUsage
	}
	if kinds := []string{store.InFiles, store.InEtcd, store.InEtcd2}; !slices.Contains(kinds, c.registry) {
		return false, fmt.Errorf("-registry=%.40q: want %s", c.registry, strings.Join(kinds, ", "))
	}
	if c.exam < time.Second || c.exam > time.Hour {
		return false, fmt.Errorf("-exam=%v: want from 1s to 1h", c.exam)
	}
	c.program = args[0]
	if c.stages, err = parseStages(args[1:]); err != nil {
		return false, err
	}
	judge, err := c.course()
	if err != nil {
		return false, err
	}
	switch word {
	case "report":
		return c.report(judge)
	case "next":
		return c.next(judge)
	}
	return c.judge(judge)
}

// parseStages reads numbers and ranges: 3, 1-6.
func parseStages(args []string) (chosen []*stage, err error) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return nil, fmt.Errorf("%.40q comes too late: flags come before the program", arg)
		}
		first, last, isRange := strings.Cut(arg, "-")
		if !isRange {
			last = first
		}
		low, err1 := strconv.Atoi(first)
		high, err2 := strconv.Atoi(last)
		if errors.Join(err1, err2) != nil || low < 1 || high > len(stages) || low > high {
			return nil, fmt.Errorf("%.40q is no stage: want a number from 1 to %d, or two with a dash between", arg, len(stages))
		}
		for n := low; n <= high; n++ {
			chosen = append(chosen, &stages[n-1])
		}
	}
	return chosen, nil
}

// course prepares a course for the program.
func (c *call) course() (*course, error) {
	command := []string{c.program}
	if _, err := os.Stat(c.program); err != nil { // else it is a path, with blanks or without
		command = strings.Fields(c.program)
	}
	if len(command) == 0 {
		return nil, errUsage
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("the program cannot be started: %w", err)
	}
	command[0] = path
	judge := &course{command: command, registry: c.registry, etcd: store.FindEtcd, exam: c.exam, seed: c.seed}
	if c.hold {
		judge.hold = c.await
	}
	return judge, nil
}

// await prints a verdict, and waits until the user has seen enough.
func (c *call) await(r result) {
	r.print(c.stdout, &stages[r.Stage-1], c.program, c.timeline, c.hints, true)
	fmt.Fprintln(c.stdout, "  All is kept as it is. Enter or Ctrl-C ends.")
	enough := make(chan os.Signal, 1)
	signal.Notify(enough, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(enough)
	read := make(chan struct{})
	go func() { // ends with the program
		defer close(read)
		_, _ = os.Stdin.Read(make([]byte, 1)) // an error is the end of the input, and so enough
	}()
	select {
	case <-enough:
	case <-read:
	}
}

// each runs the chosen stages. Without a choice it stops after the first that fails, unless all is set or none assumes it.
func (c *call) each(judge *course, all bool, show func(r result, s *stage)) (failures int, err error) {
	chosen := c.stages
	if chosen == nil {
		for i := range stages {
			chosen = append(chosen, &stages[i])
		}
	} else {
		all = true
	}
	for _, s := range chosen {
		r, err := judge.run(s)
		if err != nil {
			return failures, err
		}
		show(r, s)
		if r.Verdict == failed {
			if failures++; !all && !s.advanced {
				break
			}
		}
	}
	return failures, nil
}

func (c *call) judge(judge *course) (bool, error) {
	count := make(map[string]int)
	failures, err := c.each(judge, c.all, func(r result, s *stage) {
		count[r.Verdict]++
		if r.Verdict != failed || judge.hold == nil { // else it is printed already
			r.print(c.stdout, s, c.program, c.timeline, c.hints, false)
		}
	})
	if err != nil {
		return false, err
	}
	fmt.Fprintf(c.stdout, "%d passed, %d failed, %d skipped; there are %d stages\n", count[passed], count[failed], count[skipped], len(stages))
	return failures == 0, nil
}

// A report is what a teacher reads.
type report struct {
	Program  string   `json:"program"`
	Registry string   `json:"registry"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	Stages   []result `json:"stages"`
}

func (c *call) report(judge *course) (bool, error) {
	sum := report{Program: c.program, Registry: c.registry}
	failures, err := c.each(judge, true, func(r result, _ *stage) {
		sum.Stages = append(sum.Stages, r)
		switch r.Verdict {
		case passed:
			sum.Passed++
		case failed:
			sum.Failed++
		default:
			sum.Skipped++
		}
	})
	if err != nil {
		return false, err
	}
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return failures == 0, enc.Encode(sum)
}

func (c *call) next(judge *course) (bool, error) {
	var next *stage
	failures, err := c.each(judge, false, func(r result, s *stage) {
		if r.Verdict == failed && next == nil {
			next = s
		}
	})
	switch {
	case err != nil:
		return false, err
	case next == nil:
		fmt.Fprintln(c.stdout, "There is no next stage: each one that was run passes.")
		return true, nil
	}
	return failures == 0, c.printText(next)
}

func (c *call) printText(s *stage) error {
	read := texts.Folded
	if c.hints {
		read = texts.Stage
	}
	text, err := read(s.number)
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(text)
	return err
}
