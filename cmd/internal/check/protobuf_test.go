package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// What Kubernetes stores by default is laid out as in a dump of an etcd, with the slices where a proxy reads them.
func TestADumpOfProtobufIsJudgedAsOneOfJSON(t *testing.T) {
	read := func(dir, suffix string) *Report {
		from := filepath.Join("../../../registry/decode/testdata/captured/kubernetes-1.36", dir)
		files, err := filepath.Glob(filepath.Join(from, "*"+suffix))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", from, err)
		}
		to := t.TempDir()
		for _, file := range files {
			value, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			key := strings.TrimPrefix(strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), suffix), "--", "/"), "services/")
			at := filepath.Join(to, registry.Prefix, key)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, value, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := FromDirectory(to)
		if err != nil {
			t.Fatal(err)
		}
		return Examine(r, Options{})
	}
	fromJSON, fromProtobuf := read("json", ".json"), read("protobuf", ".bin")
	if fromJSON.Summary != fromProtobuf.Summary || fromProtobuf.Summary.Records < 40 || fromProtobuf.Summary.Services < 15 {
		t.Errorf("JSON: %+v\nprotobuf: %+v", fromJSON.Summary, fromProtobuf.Summary)
	}
	for i, v := range fromProtobuf.Records {
		j := fromJSON.Records[i]
		if v.Holds != j.Holds && !strings.Contains(v.Key, "/dual-") { // whose two slices have other names, and so another order
			t.Errorf("%s holds %q, %s %q", j.Key, j.Holds, v.Key, v.Holds)
		}
		for _, found := range v.Findings {
			if found.Code == BadRecord || found.Code == UnknownField {
				t.Errorf("%s: %s", v.Key, found.Text)
			}
		}
	}
}
