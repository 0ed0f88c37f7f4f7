package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A cliCase is one entry of testdata/cli-cases.json: a command line, what v0.4.4 did with it, and in
// prose what we want. "same" means what v0.4.4 did; all else is spelled out in ourOwnWay.
type cliCase struct {
	Args []string `json:"args"`
	Add  string   `json:"add"` // one more argument, so that there is a source
	V044 struct {
		Exit           *int   `json:"exit"` // nil: keeps running
		Stdout         string `json:"stdout"`
		StderrContains string `json:"stderrContains"`
	} `json:"v044"`
	Want string `json:"want"`
}

// An outcome is what a command line leads to.
type outcome struct {
	exit   int
	stdout string // a regular expression for all of it
	stderr string // is part of it
}

// keepsRunning stands for an exit status.
const keepsRunning = -1

// ourVersion is what -version prints.
const ourVersion = `kube-proxy \S+\n`

// ourOwnWay has the outcomes that are not v0.4.4's, by the prose that asks for them.
var ourOwnWay = map[string]outcome{
	"exit 0, one line naming our version":        {exitDone, ourVersion, ""},
	"same as -version":                           {exitDone, ourVersion, ""},
	"exit 0, short form":                         {exitDone, ourVersion, ""},
	"exit 0, one line with all version fields":   {exitDone, `version\.Info\{Major:".*", Minor:".*", GitVersion:".+", GitCommit:".*", GitTreeState:".+", .*\}\n`, ""},
	"trim blanks":                                {keepsRunning, "", "watching etcd at [http://127.0.0.1:1 http://127.0.0.1:2]"},
	"treat as http://127.0.0.1:4001":             {keepsRunning, "", "watching etcd at [http://127.0.0.1:4001]"},
	"empty means not given: as no source at all": {exitUsage, "", "-etcd_servers, -etcd_config, -registry_dir, -master"},
	"refuse positional arguments (exit 2)":       {exitUsage, "", "unexpected argument: "},
	"exit 2, one line: -etcd_servers and -etcd_config are mutually exclusive": {
		exitUsage, "", "-etcd_servers and -etcd_config are mutually exclusive\n"},
	"exit 1, one line naming the file and the reason": {
		exitFailed, "", `"/nonexistent": no such file or directory` + "\n"},
	"exit 2, one line that names -etcd_servers and -etcd_config and points to the README: a proxy without a source is a mistake, not a service": {
		exitUsage, "", "give -etcd_servers, -etcd_config, -registry_dir, -master or -kubeconfig (README.md shows how)\n"},
	"-master wins, with a warning that names the flags of etcd": {keepsRunning, "", "-etcd_servers is ignored"},
	"exit 1, the same sentence":                                 {exitFailed, "", `API version "v9" is not recognized (valid values: v1beta1, v1beta2, v1)`},
	"parsed and ignored with one warning":                       {keepsRunning, "", "-api_version is ignored"},
}

// TestCommandLinesOfV044 runs every command line of the list.
func TestCommandLinesOfV044(t *testing.T) {
	var cases []cliCase
	text, err := os.ReadFile("testdata/cli-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		t.Run(strings.Join(c.Args, " "), func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c cliCase) check(t *testing.T) {
	want, ok := ourOwnWay[c.Want]
	if c.Want == "same" {
		want, ok = outcome{keepsRunning, regexp.QuoteMeta(c.V044.Stdout), c.V044.StderrContains}, true
		want.stdout = strings.ReplaceAll(want.stdout, regexp.QuoteMeta("Kubernetes v0.4.4\n"), ourVersion)
		if c.V044.Exit != nil {
			want.exit = *c.V044.Exit
		}
	}
	if !ok {
		t.Fatalf("nobody has said what this means: %s", c.Want)
	}
	args := c.Args
	if c.Add != "" {
		args = append(args, c.Add)
	}
	p := start(t, nil, args...)
	exit := want.exit
	if want.exit == keepsRunning {
		watching := "watching etcd at [http://127.0.0.1:"
		if strings.HasPrefix(args[0], "-master") {
			watching = "watching API server at http://127.0.0.1:"
		}
		p.Stderr.Wait(t, watching) // past everything that could be wrong with the command line
		p.Signal(t, syscall.SIGTERM)
		exit = exitDone
	}
	if got := p.Exit(t).ExitCode(); got != exit {
		t.Errorf("exit status %d, want %d", got, exit)
	}
	if !regexp.MustCompile("^" + want.stdout + "$").MatchString(p.Stdout.String()) {
		t.Errorf("standard output %q, want %q", p.Stdout.String(), want.stdout)
	}
	stderr := p.Stderr.String()
	if !strings.Contains(stderr, want.stderr) {
		t.Errorf("standard error without %q", want.stderr)
	}
	first, rest, _ := strings.Cut(stderr, "\n")
	switch want.exit {
	case exitUsage: // one line, then where there is more
		if rest != "(kube-proxy -help explains the flags)\n" {
			t.Errorf("after the line %q comes %q", first, rest)
		}
	case exitFailed: // one line
		if first == "" || rest != "" {
			t.Errorf("standard error is not one line: %q", stderr)
		}
	}
}
