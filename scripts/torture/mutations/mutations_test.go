//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const root = "../../.."

// make torture-mutations takes minutes. That its patches are about today's code is known without it.
func TestEachPatchChangesTheTreeOfToday(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	all, err := mutations(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Errorf("there are %d mutations; want at least 5", len(all))
	}
	for _, m := range all {
		file, err := m.overlay(root, t.TempDir())
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var overlay struct{ Replace map[string]string }
		if err := json.Unmarshal(text, &overlay); err != nil {
			t.Fatal(err)
		}
		if len(overlay.Replace) == 0 || len(m.args) == 0 {
			t.Errorf("%s changes %d files, and has the torture run with %q", m.name, len(overlay.Replace), m.args)
		}
		for from, to := range overlay.Replace {
			before, err1 := os.ReadFile(from)
			after, err2 := os.ReadFile(to)
			if err1 != nil || err2 != nil || bytes.Equal(before, after) {
				t.Errorf("%s does not change %s: %v, %v", m.name, from, err1, err2)
			}
		}
	}
}

func TestARunWithoutAMutationIsAnError(t *testing.T) {
	for _, c := range []struct {
		root  string
		names []string
	}{{root, []string{"no-such-patch"}}, {t.TempDir(), nil}} {
		if err := run(c.root, c.names, 0, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "there is no patch") {
			t.Errorf("%q: error %v; want one that says that there is no patch", c.names, err)
		}
	}
}

func TestTheFirstFaultOfARunIsFound(t *testing.T) {
	for said, want := range map[string]string{
		"torture of kube-proxy\nround 3, which ends with engine ring:\nconnection 7: it is cut\nconnection 8: too\nrounds 3\n": "connection 7: it is cut",
		"torture of kube-proxy\nrounds 3\nwrong 0\n":                 "",
		"torture: -engine=ring cannot be used here: not permitted\n": "",
	} {
		if got := fault([]byte(said)); got != want {
			t.Errorf("%q: got %q; want %q", said, got, want)
		}
	}
}
