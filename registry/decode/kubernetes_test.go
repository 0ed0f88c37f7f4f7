package decode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

// A captured is a value that Kubernetes has stored.
type captured struct {
	file, key string
	value     []byte
}

// capturedBy1_36 reads the values of one directory. Kubernetes keeps slices at another place: their keys are given as a source gives them.
func capturedBy1_36(t testing.TB, dir string) (all []captured) {
	t.Helper()
	dir = filepath.Join("testdata", "captured", "kubernetes-1.36", dir)
	index, err := os.ReadFile(filepath.Join(dir, "index.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(index)), "\n") {
		if i == 0 {
			continue // the names of the columns
		}
		columns := strings.Split(line, "\t")
		value, err := os.ReadFile(filepath.Join(dir, columns[0]))
		if err != nil {
			t.Fatal(err)
		}
		key := columns[1]
		if below, ok := strings.CutPrefix(key, "/registry/endpointslices/"); ok {
			key = registry.EndpointSlicesPrefix + below
		}
		all = append(all, captured{columns[0], key, value})
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", dir)
	}
	return all
}

func TestRecordsWrittenByKubernetes136Decode(t *testing.T) {
	var b strings.Builder
	for _, dir := range []string{"json", "json-terminating"} {
		for _, c := range capturedBy1_36(t, dir) {
			r, warnings, err := Decode(c.key, c.value)
			checkAnswer(t, r, warnings, err)
			if err != nil {
				t.Errorf("%s: %v", c.file, err)
				continue
			}
			fmt.Fprintf(&b, "%s/%s: %s\n", dir, c.file, summary(r))
			for _, w := range warnings {
				fmt.Fprintf(&b, "%s/%s: warning: %s\n", dir, c.file, w)
			}
		}
	}
	golden(t, filepath.Join("captured", "kubernetes-1.36.golden"), b.String())
}

// The two sets of values were written by two clusters that were asked for the same. What differs is what they chose themselves: the names of
// slices, the node port of one service, and the port of the API server.
func TestProtobufSaysWhatItsTwinInJSONSays(t *testing.T) {
	chosen := strings.NewReplacer("/tcp/30963", "/tcp/31518", "10.99.0.1:6543", "10.99.0.1:6443")
	said := func(dir string) (all []string) {
		for _, c := range capturedBy1_36(t, dir) {
			r, warnings, err := Decode(c.key, c.value)
			checkAnswer(t, r, warnings, err)
			if err != nil {
				t.Errorf("%s: %v", c.file, err)
				continue
			}
			nodePorts, more, err := Decoder{NodePorts: true}.Decode(c.key, c.value)
			if err != nil {
				t.Errorf("%s, node ports: %v", c.file, err)
			}
			text := fmt.Sprintf("%s %q, with node ports %s (%d without) %q", summary(r), warnings, summary(nodePorts), nodePorts.NoNodePort, more)
			if s := r.Slice; s != nil {
				text = strings.ReplaceAll(text, s.Name.String(), "slice of "+s.Service)
			}
			if s := r.Service; s != nil {
				text += fmt.Sprint(" ", s.Terms().AffinityTimeout, s.Terms().SourceRanges)
			}
			all = append(all, chosen.Replace(text))
		}
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(said("json"), said("protobuf")); diff != "" {
		t.Errorf("JSON (-), protobuf (+):\n%s", diff)
	}
}
