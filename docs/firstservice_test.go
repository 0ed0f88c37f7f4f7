package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kubeproxy/internal/process"
)

// TestTheFirstServiceOfTheDocsIsAnswered runs the commands of docs/first-service.md, on other ports. Commands with an output are
// repeated until it is there.
func TestTheFirstServiceOfTheDocsIsAnswered(t *testing.T) {
	t.Parallel() // it waits, and the others compute
	for _, program := range []string{"bash", "curl", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile("first-service.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, port := range []int{8000, 8081, 8082, 10249} {
		free, err := process.FreePorts(1024, 32767, 1)
		if err != nil {
			t.Fatal(err)
		}
		page = strings.ReplaceAll(page, strconv.Itoa(port), strconv.Itoa(int(free)))
		if port == 10249 {
			page = strings.ReplaceAll(page, "bin/kube-proxy -registry_dir", fmt.Sprintf("bin/kube-proxy -healthz_bind_address= -metrics_bind_address=127.0.0.1:%d -registry_dir", free))
		}
	}
	script := []string{"set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"}
	outputs := 0
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?").FindAllStringSubmatch(page, -1) {
		if m[2] == "" {
			script = append(script, m[1])
			continue
		}
		outputs++
		script = append(script, fmt.Sprintf("want=$(cat <<'END'\n%sEND\n)\nfor i in {1..300}; do\ngot=$({ %s } 2>/dev/null) && [[ $got == \"$want\" ]] && break\nsleep 0.1\ndone\n[[ $got == \"$want\" ]] || { echo \"got $got; want $want\" >&2; exit 1; }", m[2], m[1]))
	}
	if outputs != 3 {
		t.Errorf("first-service.md has %d outputs; want 3", outputs)
	}
	run := exec.CommandContext(t.Context(), "bash", "-c", strings.Join(script, "\n"))
	run.Dir = filepath.Dir(filepath.Dir(builtKubeProxy(t)))
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// builtKubeProxy builds the program into the directory bin of one that is the test's own, and returns its path.
func builtKubeProxy(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./cmd/kube-proxy")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(bin, "kube-proxy")
}
