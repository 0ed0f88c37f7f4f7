package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A captured record is one that a Kubernetes v0.4.4 master really wrote. The name of its file says
// where: storage version, etcd index, action, kind, id.
type captured struct {
	storage, kind, id string
	value             []byte
}

func capturedRecords(t *testing.T) []captured {
	t.Helper()
	files, err := filepath.Glob("testdata/captured/*.json") // sorted: by version, then by index
	if err != nil || len(files) < 20 {
		t.Fatalf("%d captured records, %v; want all of them", len(files), err)
	}
	var records []captured
	for _, file := range files {
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		part := strings.Split(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		records = append(records, captured{part[0], part[3], part[4], value})
	}
	return records
}

func (c captured) key() string {
	if c.kind == "service" {
		return "/registry/services/specs/" + c.id
	}
	return "/registry/services/endpoints/" + c.id
}
