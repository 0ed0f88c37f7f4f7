//go:build linux

package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// recordSize is just under etcd's request limit, 1.5 MiB, of which the key and the request take some.
const recordSize = 1_500_000

// TestRecordsJustUnderTheLimit are written again and again, good ones and bad ones, beside many small bad ones.
func TestRecordsJustUnderTheLimit(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := newSite(t)
	bad := number(2000, 200)
	for i := range bad {
		s.put(t, fmt.Sprintf("%sbad-%d", registry.SpecsPrefix, i), []string{"", "{", `{"kind":"Service"`, `[]`, strings.Repeat("[", 5000), "\x00\x01", `{"kind":"Service","apiVersion":"v9","port":-1}`}[i%7])
	}
	eventually(t, func() bool { return s.sum(t, "kubeproxy_rejected_keys") == float64(bad) }, "%d keys are rejected", bad)
	fill := func(head, each, tail string) string {
		return head + strings.Repeat(each+",", (recordSize-len(head)-len(tail))/(len(each)+1)-1) + each + tail
	}
	save := func(name string, values ...string) (files []string) {
		for i, value := range values {
			file := filepath.Join(s.dir, fmt.Sprintf("%s-%d", name, i))
			if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		return files
	}
	files := save("value",
		largeEndpoints(1, recordSize), largeEndpoints(2, recordSize),
		fill(`{"kind":"Endpoints","apiVersion":"v1","subsets":[`, `{}`, `]}`),
		fill(`{"kind":"Endpoints","apiVersion":"v1","subsets":[`, `{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":1}]}`, `]}`),
		fill(`{"kind":"Endpoints","apiVersion":"v1beta3","endpoints":[`, `{}`, `]}`),
		fill(`{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":[`, `"x"`, `]`), // and no end
		strings.Repeat("[", recordSize),
		`{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":["`+strings.Repeat("a", recordSize)+`"]}`,
	)
	var good []string // as many, and as large
	for i := range files {
		good = append(good, largeEndpoints(1+i, recordSize))
	}
	usable := save("usable", good...)
	writes := number(24, 16)
	write := func(t *testing.T, prefix string, files []string) func() {
		p := cast(t, "writer", s.etcd.URL(), prefix, strings.Join(files, ","), writes, number(3, 12), 4)
		s.works(t)
		p.Stdout.Wait(t, "done: ")
		if !strings.Contains(p.Stdout.String(), "done: 0 failed") {
			t.Errorf("writing: %s", p.Stdout)
		}
		return func() { dismiss(t, p) }
	}
	s.innocent = func(t *testing.T) func() { return write(t, registry.EndpointsPrefix, usable) }
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		prefix := "/elsewhere/" // etcd has the same to do, and the proxy does not follow it
		if atProxy {
			prefix = registry.EndpointsPrefix
		}
		return write(t, prefix, files)
	})
	r := s.row(t, fmt.Sprintf("records of %d bytes, %d writes in each round, and %d bad ones", recordSize, writes, bad), largeRecords)
	r.Refused = fmt.Sprintf("%.0f keys rejected", s.sum(t, "kubeproxy_rejected_keys"))
	r.Felt = felt
	r.judge(t)
}

// largeRecords is what the process may take while it reads the largest records: a list of all that etcd holds, the
// decoded form of each, and what decoding one leaves to be collected.
const largeRecords = 256 << 20

// TestARegistryWithoutAUsableKeyIsNotServed: all values are protobuf. The node says so in few lines and is not ready.
func TestARegistryWithoutAUsableKeyIsNotServed(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := foundSite(t).forAttack()
	if _, err := s.kv.Delete(t.Context(), registry.EndpointsPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		s.put(t, fmt.Sprint(registry.SpecsPrefix, "pb-", i), "k8s\x00\n\v\n\x02v1\x12\aService\x12\x05\n\x03web")
	}
	s.start(t, "")
	s.watchProcess(t)
	eventually(t, func() bool { return s.sum(t, "kubeproxy_rejected_keys") == 100 }, "all keys are rejected")
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	for ctx.Err() == nil {
		if s.page(t, healthzURL+"/readyz") != "" {
			t.Fatal("it is ready, although no key can be used")
		}
	}
	lines := 0
	for line := range strings.Lines(s.proxy.Stderr.String()) {
		if strings.HasPrefix(line, "E") || strings.HasPrefix(line, "W") {
			lines++
		}
	}
	if lines > 3 {
		t.Errorf("it wrote %d warnings and errors; want 3 at most", lines)
	}
	r := s.row(t, "a registry of protobuf values", base)
	r.Refused = "100 keys rejected; not ready"
	r.judge(t)
}

// largeEndpoints is a record of about so many bytes, with as many addresses as fit. The seed makes it another one.
func largeEndpoints(seed, size int) string {
	var b strings.Builder
	b.WriteString(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"large","endpoints":[`)
	for i := 0; b.Len() < size-40; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"10.%d.%d.%d:%d"`, seed, i>>8&255, i&255, 1+i>>16)
	}
	return b.String() + "]}"
}
