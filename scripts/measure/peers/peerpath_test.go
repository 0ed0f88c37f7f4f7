//go:build linux

package peers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestThePeersProgramIsTheOneOfTheEnvironment: HAPROXY and NGINX name another than the installed one, and one that is not there is named by the error.
func TestThePeersProgramIsTheOneOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"haproxy", "nginx"} {
		mine := filepath.Join(dir, "my-"+name)
		if err := os.WriteFile(mine, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv(strings.ToUpper(name), mine)
		if path, err := peerPath(name); path != mine || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, path, err, mine)
		}
		t.Setenv(strings.ToUpper(name), mine+"-gone")
		if path, err := peerPath(name); err == nil || !strings.Contains(err.Error(), mine+"-gone") {
			t.Errorf("%s: %q, %v; want an error that names %s-gone", name, path, err, mine)
		}
	}
}
