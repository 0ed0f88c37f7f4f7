package commandline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestAFileFillsInWhatTheCommandLineLeaves(t *testing.T) {
	c := sample()
	if err := c.Parse([]string{"-v=3", "-etcd_servers=http://cli:1"}); err != nil {
		t.Fatal(err)
	}
	if err := Fill(c.Flags, []Setting{
		{Flag: "etcd-servers", Values: []string{"http://file:1", "http://file:2"}},
		{Flag: "engine", Values: []string{"portable"}},
		{Flag: "logtostderr", Values: []string{"false"}},
		{Flag: "v", Values: []string{"1"}},
	}); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	c.Flags.Visit(func(f *pflag.Flag) { got[f.Name] = f.Value.String() })
	want := map[string]string{"v": "3", "etcd_servers": "http://cli:1", "engine": "portable", "logtostderr": "false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	c = sample()
	if err := Fill(c.Flags, []Setting{{Flag: "etcd_servers", Values: []string{"http://a:1", "http://b:2"}}}); err != nil {
		t.Fatal(err)
	}
	if got := c.Flags.Lookup("etcd_servers").Value.String(); got != "http://a:1,http://b:2" {
		t.Errorf("a list is %s", got)
	}
}

func TestAFileIsRefusedWithItsKeyAndPlace(t *testing.T) {
	one := func(flag string, values ...string) Setting {
		return Setting{Flag: flag, Values: values, Where: "f: line 1: "}
	}
	for _, tt := range []struct {
		settings []Setting
		want     string
	}{
		{[]Setting{one("etcd_server", "x")}, "f: line 1: there is no flag -etcd_server; did you mean etcd_servers?"},
		{[]Setting{one("zzzzzz", "x")}, "f: line 1: there is no flag -zzzzzz"},
		{[]Setting{one("a\nb", "x")}, `f: line 1: there is no flag -"a\nb"`},
		{[]Setting{one(strings.Repeat("a", 100), "x")}, "f: line 1: there is no flag -" + strings.Repeat("a", 64) + "..."},
		{[]Setting{one("engine", "steam")}, `f: line 1: invalid value "steam" for flag -engine: must be epoll, portable or auto`},
		{[]Setting{one("engine", "auto", "epoll")}, "f: line 1: -engine wants one value, and has a list of 2"},
		{[]Setting{one("engine")}, "f: line 1: -engine wants one value, and has a list of 0"},
		{[]Setting{one("bind_address", "::1"), one("bind-address", "::1")}, "f: line 1: -bind_address is there twice"},
		{[]Setting{one("version", "true")}, "f: line 1: -version can stand on the command line only"},
		{[]Setting{one("etcd_servers")}, ""},
	} {
		got := ""
		if err := Fill(sample().Flags, tt.settings, "version"); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q\nwant %q", got, tt.want)
		}
	}
}
