package commandline

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestNormaliseKeepsTheMeaning(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"one dash", "-etcd_servers=http://a:1", "--etcd_servers=http://a:1"},
		{"two dashes", "--etcd_servers=http://a:1", "--etcd_servers=http://a:1"},
		{"the value is the next argument", "-etcd_servers http://a:1", "--etcd_servers=http://a:1"},
		{"even if it looks like a flag", "-etcd_config -v", "--etcd_config=-v"},
		{"and if it looks like the end of flags", "-etcd_config --", "--etcd_config=--"},
		{"nothing follows", "-etcd_servers", "--etcd_servers"},
		{"an empty value is a value", "-etcd_config= -v=1", "--etcd_config= --v=1"},
		{"cut at the first =", "-vmodule=x=2", "--vmodule=x=2"},
		{"a name that begins with another", "-vmodule x=2", "--vmodule=x=2"},
		{"one letter", "-v 4", "--v=4"},
		{"one letter and two dashes", "--v=4", "--v=4"},
		{"a boolean takes no argument", "-logtostderr false", "--logtostderr false"},
		{"nor does -version", "-version raw -v", "--version raw -v"},
		{"-h", "-h", "--help"},
		{"dashes between the words", "-bind-address ::1 --log-flush_frequency=1s", "--bind_address=::1 --log_flush_frequency=1s"},
		{"unknown", "-bogus x", "--bogus x"},
		{"unknown, one letter", "-x=1", "--x=1"},
		{"three dashes", "---v=1", "---v=1"},
		{"no name", "-=1", "--=1"},
		{"flags end at an argument without a dash", "-v=1 a -v 1", "--v=1 a -v 1"},
		{"at a lone dash", "- -v 1", "- -v 1"},
		{"and after --", "-- -v 1", "-- -v 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(normalise(sample().Flags, strings.Fields(tt.args), false), " ")
			if got != tt.want {
				t.Errorf("normalise(%s)\n got %s\nwant %s", tt.args, got, tt.want)
			}
		})
	}
}

// FuzzNormalise reads each command line twice: with package flag, whose syntax v0.4 had, and
// normalised with pflag. Both must see the same flags with the same values in the same order, and
// stop at the same place for the same reason.
func FuzzNormalise(f *testing.F) {
	for _, line := range []string{
		"", "-v\n4", "-vmodule=x=2\n--v=1", "-etcd_servers\n-h\n-help", "-version\nraw", "--version=raw\n-bogus", "-etcd_servers",
		"--\n-v", "-\n-v", "---v", "-=", "-bind_address= ::1 \n-logtostderr=false\n-alsologtostderr\nx", "-h=false", "-\xff=1",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var args []string
		if line != "" {
			args = strings.Split(line, "\n")
		}
		flags := sample().Flags
		normal := normalise(flags, args, false)
		if again := normalise(flags, normal, false); !cmp.Equal(again, normal) {
			t.Errorf("normalise(%q) = %q, and that normalises to %q", args, normal, again)
		}
		got := readWithPflag(normal)
		want, ok := readWithFlag(args)
		if !ok {
			return // names with dashes, which package flag does not take for ours
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q, normalised to %q: package flag (-) and ours (+) differ:\n%s", args, normal, diff)
		}
	})
}

// A reading is what a parser made of a command line: the flags it set, in order, and then either the
// arguments that are left or the beginning of an error.
type reading struct {
	Set   []string // name=value
	Left  []string
	Error string
}

// take notes one flag. -help ends the parsing, as it does in the program.
func (r *reading) take(name, value string) error {
	if name == "help" {
		return flag.ErrHelp
	}
	r.Set = append(r.Set, name+"="+value)
	return nil
}

// end notes how the parsing ended. What follows the colon is worded by each parser in its own way.
func (r *reading) end(left []string, err error) {
	switch {
	case err == nil && len(left) > 0:
		r.Left = left
	case err == nil:
	case strings.HasSuffix(err.Error(), flag.ErrHelp.Error()):
		r.Error = "help"
	default:
		r.Error, _, _ = strings.Cut(err.Error(), ":")
	}
}

func readWithPflag(args []string) (r reading) {
	flags := sample().Flags
	err := flags.ParseAll(args, func(f *pflag.Flag, value string) error { return r.take(f.Name, value) })
	if err != nil {
		err = inOldWords(flags, err)
	}
	r.end(flags.Args(), err)
	return r
}

// readWithFlag tells not to compare when a name has a dash in it.
func readWithFlag(args []string) (r reading, sameNames bool) {
	model := flag.NewFlagSet("kube-proxy", flag.ContinueOnError)
	model.SetOutput(io.Discard)
	sample().Flags.VisitAll(func(f *pflag.Flag) {
		take := func(value string) error { return r.take(f.Name, value) }
		if f.NoOptDefVal != "" {
			model.BoolFunc(f.Name, "", take)
		} else {
			model.Func(f.Name, "", take)
		}
	})
	err := model.Parse(args)
	r.end(model.Args(), err)
	if err == nil {
		return r, true
	}
	name, undefined := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	return r, !undefined || !strings.Contains(name, "-")
}
