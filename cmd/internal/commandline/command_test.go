package commandline

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// sample is a command line with a flag of each kind.
func sample() *Command {
	c := New("kube-proxy", "", "connects clients to services", func(*pflag.FlagSet) error { return nil })
	c.Group("registry", func(f *pflag.FlagSet) {
		f.Var(new(List), "etcd_servers", "the etcd to watch: `URLs` of its members")
		f.String("etcd_config", "", "`file` with client settings")
		f.String("registry_dir", "", "`directory` with records")
	})
	c.Group("listening", func(f *pflag.FlagSet) {
		f.Var(new(Address), "bind_address", "`address` to bind to")
		engine := "auto"
		f.Var(Choice(&engine, "epoll", "portable", "auto"), "engine", "`engine` that moves the bytes: it's [odd] \"quoted\", 10:00, `C:\\dir`")
		f.Int("max", 0, "`number` of connections")
	})
	c.Group("logging", func(f *pflag.FlagSet) {
		f.IntP("v", "v", 0, "log `level`")
		f.String("vmodule", "", "log levels by file")
		f.Bool("logtostderr", true, "log to standard error")
		f.Bool("alsologtostderr", false, "log to both")
		flush := 5 * time.Second
		f.Var(Positive(&flush), "log_flush_frequency", ".no effect: begins with a dot")
	})
	c.Derive("max", "half of what there is", "17")
	return c
}

// sampleManual has a sub-command, too.
func sampleManual() *Manual {
	check := New("kube-proxy check", "[DIRECTORY]", "judges records", func(*pflag.FlagSet) error { return nil })
	check.Group("registry", func(f *pflag.FlagSet) {
		f.String("registry_dir", "", "`directory` with records")
		f.Var(new(Count), "lines", "`number` of lines")
		f.String("secret", "", "not shown")
	})
	check.Show([]string{"help", "registry_dir", "lines"})
	drain := New("kube-proxy drain", "SERVICE ADDR", "gives an endpoint no new clients", func(*pflag.FlagSet) error { return nil })
	drain.Group(General, func(f *pflag.FlagSet) {
		f.String("control", "", "`path` of a socket")
		f.String("service", "", "only this `service`")
		f.String("endpoint", "", "only this `endpoint`")
		f.Bool("force", false, "also the last one")
	})
	drain.Show([]string{"help", "control", "service", "endpoint", "force"})
	return &Manual{
		Commands: []*Command{sample(), check, drain},
		Topics:   []Topic{{"registry", "where services are read from"}, {"listening", "addresses"}, {"logging", "log lines"}, {General, "help"}},
		Common:   []string{"etcd_servers", "v"},
		Summary:  "connects clients to services", Date: "January 1, 2026", Sections: ".Sh SIGNALS\nSIGTERM ends it.\n",
	}
}

func TestAnErrorAboutANameSaysWhichWasMeant(t *testing.T) {
	for typed, want := range map[string]string{
		"-etcd_server=x":      "-etcd_servers",
		"--etcd-serverss=x":   "-etcd_servers",
		"-bindaddress=::1":    "-bind_address", // as v0.4's man page had it
		"-bnid_address=::1":   "-bind_address",
		"-logtostdrr":         "-logtostderr",
		"-Engine=auto":        "-engine",
		"-q":                  "", // one letter is similar to each other one
		"-completely_unknown": "",
	} {
		c := sample()
		err := c.Parse([]string{typed})
		if err == nil {
			t.Errorf("%s is accepted", typed)
			continue
		}
		var text bytes.Buffer
		c.Complain(&text, err)
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		hint := "(kube-proxy -help explains the flags)"
		if want != "" {
			hint = "(did you mean " + want + "? kube-proxy -help explains the flags)"
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "flag provided but not defined: -") || lines[1] != hint {
			t.Errorf("%s: got %q; want one line about it, and %q", typed, lines, hint)
		}
	}
	if err := Unexpected("chekc", "kube-proxy", "check", "get"); errorHint(err) != "kube-proxy check" || err.Error() != "unexpected argument: chekc" {
		t.Errorf("got %v, and %q", err, errorHint(err))
	}
	if hint := errorHint(sampleManual().Help(new(bytes.Buffer), []string{"loging"})); hint != "logging" {
		t.Errorf("for a topic: got %q", hint)
	}
	if hint := errorHint(sampleManual().Help(new(bytes.Buffer), []string{"completion", "bsh"})); hint != "help completion bash" {
		t.Errorf("for a shell: got %q", hint)
	}
}

func errorHint(err error) string {
	if m, ok := errors.AsType[*mistake](err); ok {
		return m.meant
	}
	return ""
}

// A name of any length is compared quickly, or not at all.
func TestALongNameIsSimilarToNothing(t *testing.T) {
	if got := closest(strings.Repeat("a", 1<<20), []string{"engine"}); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestTheVersionDoesNotDependOnOtherFlags(t *testing.T) {
	c := sample()
	c.Examine = func(*pflag.FlagSet) error { return errors.New("examined") }
	if err := c.Parse([]string{"-version=raw"}); err != nil || c.Version != VersionRaw {
		t.Errorf("got %v, and %v", err, &c.Version)
	}
	c.Version = VersionOff
	if err := c.Parse(nil); err == nil {
		t.Error("without -version, flags are not examined")
	}
}
