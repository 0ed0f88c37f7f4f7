package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	texts "kubeproxy/docs/school"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

var whole = flag.Bool("school.whole", false, "also judge programs that take long, and bin/kube-proxy with each engine; needs node and socat")

// At most so many trials run at a time. A program that fails makes its judge wait, so a trial takes little of the machine.
var atOnce = make(chan struct{}, 10)

// judged runs a program through stages, and returns what they say.
func judged(t *testing.T, command []string, chosen ...*stage) []result {
	t.Helper()
	return judgedOver(t, store.InFiles, command, chosen...)
}

// judgedOver is judged, with a kind of registry.
func judgedOver(t *testing.T, registry string, command []string, chosen ...*stage) []result {
	t.Helper()
	c := &course{command: command, registry: registry, etcd: process.EtcdBinary, exam: examLasts()}
	results := make([]result, len(chosen))
	var all sync.WaitGroup
	for i, s := range chosen {
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			var err error
			if results[i], err = c.run(s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return results
}

// examLasts is less than what students have, because the race detector and other tests run beside it.
func examLasts() time.Duration {
	if *whole {
		return time.Minute
	}
	return 15 * time.Second
}

// every returns all stages.
func every() (all []*stage) {
	for i := range stages {
		all = append(all, &stages[i])
	}
	return all
}

// TestTheStagesOverFilesCanBeJudgedOverEtcd: v0.4's own kube-proxy knows no files.
func TestTheStagesOverFilesCanBeJudgedOverEtcd(t *testing.T) {
	if !*whole {
		t.Skip("without -school.whole")
	}
	for _, r := range judgedOver(t, store.InEtcd, []string{tool(t, "python3"), "testdata/reference.py"}, every()...) {
		if r.Verdict == failed {
			t.Error(explain(r))
		}
	}
}

// tool returns the path of a program that tests need. Where it is missing they are skipped, but with -school.whole, which asks for all of them.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err != nil && *whole:
		t.Fatalf("%s is not installed: %v", name, err)
	case err != nil:
		t.Skipf("%s is not installed: %v", name, err)
	}
	if name == "python3" { // it may be a script that looks for a Python, and takes longer than that
		if own, err := exec.CommandContext(t.Context(), path, "-c", "import sys; print(sys.executable)").Output(); err == nil {
			return strings.TrimSpace(string(own))
		}
	}
	return path
}

func TestTheWholeSchoolIsNotJudgedWithoutItsTools(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheReferencePassesEveryStage$", "-school.whole")
	cmd.Env = append(os.Environ(), "PATH=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "python3 is not installed") {
		t.Errorf("%v, %s; want a failure for want of python3", err, out)
	}
}

func explain(r result) string {
	return fmt.Sprintf("stage %d (%s): %s\n  step %s\n  expected %s\n  seen %s\n  %s\n  | %s", r.Stage, r.Title, r.Verdict, r.Step, r.Expected, r.Seen,
		strings.Join(r.Timeline, "\n  "), strings.Join(r.Output, "\n  | "))
}

func TestTheReferencePassesEveryStage(t *testing.T) {
	t.Parallel()
	for _, r := range judged(t, []string{tool(t, "python3"), "testdata/reference.py"}, every()...) {
		if r.Verdict == failed {
			t.Error(explain(r))
		}
	}
}

// naiveFails are the stages that a program fails which carries bytes and does not look further.
var naiveFails = []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 20, 21, 22, 24}

func TestANaiveProgramFailsExactlyItsStages(t *testing.T) {
	t.Parallel()
	failsExactly(t, naiveFails, tool(t, "python3"), "testdata/naive.py")
}

func TestNaiveProgramsInOtherLanguagesFailExactlyTheirStages(t *testing.T) {
	if !*whole {
		t.Skip("without -school.whole")
	}
	t.Run("node", func(t *testing.T) { failsExactly(t, naiveFails, tool(t, "node"), "testdata/naive.js") })
	t.Run("shell", func(t *testing.T) {
		tool(t, "socat")
		failsExactly(t, []int{3, 5, 6, 7, 8, 9, 10, 11, 12, 15, 21, 22, 24}, tool(t, "bash"), "testdata/naive.sh")
	})
}

func failsExactly(t *testing.T, want []int, command ...string) {
	t.Helper()
	var got []int
	shell := filepath.Base(command[0]) == "bash"                                                                                            // connected to itself, a program that has a process for each client starts thousands
	for _, r := range judged(t, command, slices.DeleteFunc(every(), func(s *stage) bool { return s.etcd || shell && s.number == 20 })...) { // they read files
		if r.Verdict == failed {
			got = append(got, r.Stage)
		}
		if (r.Verdict == failed) != slices.Contains(want, r.Stage) && r.Verdict != skipped {
			t.Error(explain(r))
		}
	}
	t.Logf("failed: %v", got)
}

// A mutation makes the reference naive in one way.
type mutation struct {
	stage    int
	old, new string
	seen     string // a part of the verdict
}

var mutations = []mutation{
	{1, "                scan()\n", "                read or good['specs'] or scan() or read.update(once=1)\n", "connection refused"},
	{2, "            relay = asyncio.create_task(self.relay(client))\n", "            relay = asyncio.create_task(self.relay(client))\n            await relay\n", "no answer"},
	{3, "    place %= len(addresses)\n", "    place = 0\n", "[red red]"},
	{4, "    destination.shutdown(socket.SHUT_WR)", "    destination.close()\n    source.close()", ""}, // closed or reset, before an answer or after half of the question
	{5, "            if port in listeners:\n                listeners.pop(port).close()", "            pass", "the port is open"},
	{6, "        if endpoint is None:\n            reset(client)\n", "        if endpoint is None:\n            await asyncio.sleep(3600)\n", "no answer"},
	{7, "search(choose(self.port))", "search(choose(self.port)[:1])", "connection reset"},
	{8, "asyncio.wait_for(connect(left.pop(0)), 2)))\n            done, _ = await asyncio.wait(attempts, timeout=0.25 if left else None,",
		"connect(left.pop(0))))\n            done, _ = await asyncio.wait(attempts,", "no answer"},
	{9, "                print(\"bad record\"", "                raise\n                print(\"bad record\"", "your program has ended"},
	{10, "queue += sorted(set(wanted.get(port, [])) - set(queue))", "queue = sorted(wanted.get(port, []))", "an answer by green"},
	{11, "recvmsg(65536, 256)", "recvmsg(4096, 256)", "no answer"},
	{12, "if session and session[1] not in endpoints(self.port):", "if False:", "which has left the record"},
	{13, "        await loop.sock_sendall(destination, data)\n", "        asyncio.create_task(loop.sock_sendall(destination, data))\n", "MiB have left the endpoint"},
	{13, "add_signal_handler(signal.SIGTERM, stop.set)", "add_signal_handler(signal.SIGTERM, stop.set)\n    signal.signal(signal.SIGPIPE, signal.SIG_DFL)", "broken pipe"},
	{14, "                await asyncio.sleep(pause)\n", "                await asyncio.sleep(0)\n", "threads that run"},
	{15, "add_signal_handler(signal.SIGTERM, stop.set)", "add_signal_handler(signal.SIGTERM, sys.exit)", "closed without an answer"},
	{16, `{**span, "start_revision": after}`, "span", "connection re"}, // refused; or reset, where only the endpoints fell into the gap
	{17, `loop.call_soon_threadsafe(apply, result.get("events", []))`,
		`[(loop.call_soon_threadsafe(apply, [event]), time.sleep(0.05)) for event in result.get("events", [])]`, "connection re"}, // refused or reset
	{18, "            time.sleep(0.2)\n", "            return\n", "an answer by red"},
	{19, "            client.close()\n            endpoint.close()\n", "            turns[client] = client, endpoint\n", ""}, // without descriptors clients wait, or a port cannot be opened
	{20, "    return [address for address in addresses if not is_own(address, port[1])]\n", "    return addresses\n", "no answer"},
	{21, "client[1], 0, client[0])", "[], 0, client[0])", "no answer from there"},
	{22, "                    records[name] = decode(", "                    turns.pop(name, None)\n                    records[name] = decode(", "[red red]"},
	{22, "place = addresses.index(last) + 1", "place += 1", "["}, // a counter modulo the length
	{23, `"start_revision": after}}, 10)`, `"start_revision": after}}, None)`, "an answer by red"},
	{24, `    if BIND == "0.0.0.0" and`, `    if False and`, "connection refused"},
}

// TestEachStageCatchesItsNaiveProgram breaks the reference for each stage, in the way that its row calls naive.
func TestEachStageCatchesItsNaiveProgram(t *testing.T) {
	t.Parallel()
	python := tool(t, "python3")
	text, err := os.ReadFile("testdata/reference.py")
	if err != nil {
		t.Fatal(err)
	}
	dir, seen := t.TempDir(), make(map[int]bool)
	var all sync.WaitGroup
	for i, m := range mutations {
		if bytes.Count(text, []byte(m.old)) != 1 {
			t.Errorf("stage %d: the reference does not have %q once", m.stage, m.old)
			continue
		}
		seen[m.stage] = true
		broken := bytes.Replace(text, []byte(m.old), []byte(m.new), 1)
		path := filepath.Join(dir, fmt.Sprintf("mutation-%d.py", i))
		if err := os.WriteFile(path, broken, 0o644); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			r := judged(t, []string{python, path}, &stages[m.stage-1])[0]
			if r.Verdict == passed || !strings.Contains(r.Seen, m.seen) {
				t.Errorf("%s\nwant it failed, with %q", explain(r), m.seen)
			}
		})
	}
	all.Wait()
	for _, s := range stages {
		if !seen[s.number] {
			t.Errorf("stage %d has no mutation", s.number)
		}
	}
}

func TestEveryEnginePassesEveryStage(t *testing.T) {
	if !*whole {
		t.Skip("without -school.whole")
	}
	binary, err := process.KubeProxyBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"portable", "epoll", "ring"} {
		for _, registry := range []string{store.InFiles, store.InEtcd2} {
			t.Run(engine+" "+registry, func(t *testing.T) {
				for _, r := range judgedOver(t, registry, []string{binary, "-engine=" + engine, "-healthz_bind_address=", "-metrics_bind_address="}, every()...) {
					if r.Verdict == failed {
						t.Error(explain(r))
					}
				}
			})
		}
	}
}

func TestAStageThatCannotBeJudgedHereIsSkippedAndSaysWhy(t *testing.T) {
	noEtcd := func() (string, error) { return "", store.ErrNoEtcd }
	for _, c := range []struct {
		registry string
		stage    stage
		why      string
	}{
		{store.InFiles, stage{only: "plan9"}, "it can be judged on plan9 only"},
		{store.InFiles, stage{etcd: true}, "no etcd: put etcd 3.5 or newer into the PATH"},
		{store.InEtcd2, stage{etcd: true, transactions: true}, "etcd 2 has no transactions"},
	} {
		r, err := (&course{registry: c.registry, etcd: noEtcd}).run(&c.stage)
		if err != nil || r.Verdict != skipped || !strings.Contains(r.Why, c.why) {
			t.Errorf("%+v, %v; want it skipped: %s", r, err, c.why)
		}
	}
	if _, err := (&course{registry: store.InEtcd, etcd: noEtcd}).run(&stage{}); !errors.Is(err, store.ErrNoEtcd) {
		t.Errorf("where etcd was asked for: %v; want an error", err)
	}
	for _, number := range []int{13, 14} {
		if only := stages[number-1].only; only != "linux" {
			t.Errorf("stage %d is for %q only; want linux", number, only)
		}
	}
}

// TestTheExamOfASeedIsTheSame: what is done, and in which order, is the seed's.
func TestTheExamOfASeedIsTheSame(t *testing.T) {
	var names [2][]string
	for i := range names {
		x := &exam{random: rand.New(rand.NewPCG(7, 0))}
		for _, name := range []string{"red", "green", "blue"} {
			x.steady = append(x.steady, peer.NewEndpoint(name, "", nil))
		}
		for range 20 {
			some, _ := x.some()
			names[i] = append(names[i], strings.Join(some, "+"))
		}
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("with one seed %v, and %v", names[0], names[1])
	}
}

// TestTheReportCardOfTheOldProgramIsAboutEveryStage: its rows have verdicts, and defects that there are.
func TestTheReportCardOfTheOldProgramIsAboutEveryStage(t *testing.T) {
	card, err := os.ReadFile("../../docs/school/v0.4.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../docs/school/README.md")
	if err != nil {
		t.Fatal(err)
	}
	compat, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stages {
		if row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \| (passes|fails|skipped) \| .`, s.number)); !row.Match(card) {
			t.Errorf("docs/school/v0.4.md has no row for stage %d", s.number)
		}
		if row := fmt.Sprintf("| %d | [%s](%02d-", s.number, s.title, s.number); !bytes.Contains(readme, []byte(row)) {
			t.Errorf("docs/school/README.md does not have %q", row)
		}
	}
	for _, defect := range regexp.MustCompile(`\bD\d+\b`).FindAll(card, -1) {
		if !bytes.Contains(compat, append([]byte("| "), append(defect, " |"...)...)) {
			t.Errorf("docs/compat.md has no defect %s", defect)
		}
	}
}

// TestStartersRunAndSeeTheirRecords: they open no port, and print the records that are there and those that come.
func TestStartersRunAndSeeTheirRecords(t *testing.T) {
	t.Parallel()
	commands := map[string][]string{"python": {"python3"}, "node": {"node"}, "go": {"go", "run"}, "shell": {"bash"}}
	files := map[string]string{"python": "starter.py", "node": "starter.js", "go": "starter.go", "shell": "starter.sh"}
	sees := func(t *trial, addr string) {
		t.do("", "wait until the starter prints %s", addr)
		t.soon(10*startLimit, "the records", func() error { // go run builds first
			if !t.program.Said(addr) {
				return errors.New("it has not printed them")
			}
			return nil
		})
	}
	readsRecords := &stage{takes: 15 * startLimit, judge: func(t *trial) {
		web := t.service("web", "127.0.0.1:9001")
		t.start(0)
		sees(t, "127.0.0.1:9001")
		web.endpoints("127.0.0.1:9002")
		sees(t, "127.0.0.1:9002")
	}}
	for language, command := range commands {
		t.Run(language, func(t *testing.T) {
			tool(t, command[0])
			text, err := texts.Starter(language)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), files[language])
			if err := os.WriteFile(path, text, 0o755); err != nil {
				t.Fatal(err)
			}
			if r := judged(t, append(command, path), readsRecords)[0]; r.Verdict != passed {
				t.Error(explain(r))
			}
		})
	}
}

func TestAVerdictNamesStepTimeExpectedSeenOutputAndCommand(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho I give up\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{"-v", "-hint", program}, &stdout, &stderr); status != 1 {
		t.Errorf("status %d, %s; want 1", status, stderr.String())
	}
	for _, want := range []string{"FAIL   1. A port for a record", "promise   ", "step      wait until a client of port ", "at        0.", "expected  an answer by red",
		"seen      connection refused", "your program has ended (exit status 3)", "    | I give up", "python3 -c 'import socket; ", "A first attempt often ",
		"It has happened: D8", "start your program: ", "0 passed, 1 failed, 0 skipped"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the verdict does not have %q:\n%s", want, stdout.String())
		}
	}

	stdout.Reset()
	if status := run([]string{"report", program, "1", "3"}, &stdout, &stderr); status != 1 {
		t.Errorf("report: status %d, %s; want 1", status, stderr.String())
	}
	var got report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Failed != 2 || len(got.Stages) != 2 || got.Stages[1].Stage != 3 || got.Stages[0].Seen == "" || got.Stages[0].ByHand == "" {
		t.Errorf("the report is %+v", got)
	}

	stdout.Reset()
	if status := run([]string{"next", program}, &stdout, &stderr); status != 1 || !strings.HasPrefix(stdout.String(), "# 1. A port for a record\n") {
		t.Errorf("next: status %d, %.60q; want 1 and the text of stage 1", status, stdout.String())
	}
}

func TestCommandLinesThatCannotBeMeantAreRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"report"}, {"next"}, {"true", "3", "-v"}, {"text"}, {"text", "99"}, {"text", "x"}, {"list", "x"}, {"starter", "cobol"},
		{"true", "0"}, {"true", "3-1"}, {"true", "1-99"}, {"true", "two"}, {"./no/such/program"}, {"-nonsense", "true"},
		{"-registry=etcd4", "true"}, {"-exam=1ms", "true"}, {"-seed=x", "true"}} {
		var stderr bytes.Buffer
		if status := run(args, new(bytes.Buffer), &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%q: status %d, %q; want 2 and a reason", args, status, stderr.String())
		}
	}
}

// TestTheTextsAreThoseOfTheStages: each stage has its text, with its title, its promise and its history, and all parts in one order.
func TestTheTextsAreThoseOfTheStages(t *testing.T) {
	for _, s := range stages {
		text, err := texts.Stage(s.number)
		if err != nil {
			t.Error(err)
			continue
		}
		rest := string(text)
		for _, part := range []string{fmt.Sprintf("# %d. %s\n", s.number, s.title), "## Build\n", "**" + s.promise + "**", "## How it is judged\n", "## Try it by hand\n",
			"<summary>Hint</summary>", "</details>", "<summary>How v0.4 got it wrong</summary>", "</details>", "## Here\n"} {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("the text of stage %d does not have %q, or not in this order", s.number, part)
				break
			}
			rest = after
		}
		sources, _, _ := strings.Cut(s.history, ":")
		for _, source := range strings.Split(sources, ", ") {
			if source, _, _ = strings.Cut(source, " "); !bytes.Contains(text, []byte(source)) {
				t.Errorf("the text of stage %d does not name %s", s.number, source)
			}
		}
	}
}
