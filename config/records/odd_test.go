package records

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// described is what the status says of odd records: how many, and those that are listed.
func (s *State) described() string {
	var st config.Status
	s.Describe(&st, time.Now())
	text := fmt.Sprint(st.Warned)
	for _, w := range st.Warnings {
		text += fmt.Sprintf(" %s@%d: %s (+%d)", strings.TrimPrefix(w.Key, registry.Prefix), w.Revision, w.Text, w.More)
	}
	return text
}

// A record that is used though something in it is odd is listed as long as it is.
func TestOddRecordsAreListed(t *testing.T) {
	key := []byte(registry.EndpointsPrefix + "a")
	endpoints := func(list string) []byte {
		return []byte(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"a","endpoints":[` + list + `]}`)
	}
	s := New(decode.Decoder{})
	put := func(created, revision int64, value []byte, want ...string) {
		t.Helper()
		s.Put(Version{Key: key, Value: value, Created: created, Revision: revision})
		got := s.described()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("at revision %d the status says %q; want %q", revision, got, w)
			}
		}
	}
	put(2, 2, endpoints(`"10.0.0.1:80"`), "0")
	put(2, 3, endpoints(`"10.0.0.1:80","10.0.0.2"`), "1 endpoints/a@3: ", "10.0.0.2")
	put(2, 4, endpoints(`"10.0.0.3"`), "1 endpoints/a@4: ", "10.0.0.3")
	odd := Version{Key: key, Value: endpoints(`"10.0.0.3"`), Created: 5, Revision: 5}
	list := s.sifted(odd) // read before the key is deleted, and merged after it
	s.Remove(key)
	if got := s.described(); got != "0" {
		t.Errorf("after the deletion the status says %q", got)
	}
	s.Merge(list, 5, nil, 4)
	put(5, 5, odd.Value, "1 endpoints/a@5: ")
	put(5, 6, []byte("{"), "0")
	put(5, 7, odd.Value, "1 endpoints/a@7: ")
	put(5, 8, endpoints(`"10.0.0.1:80"`), "0")
}

// TestTheWarningsAboutOneValueTakeAFewLines, and are counted beyond them.
func TestTheWarningsAboutOneValueTakeAFewLines(t *testing.T) {
	log := recordstest.LogSince(t)
	const n = maxWarnings + 25
	var annotations []string
	for i := range n {
		annotations = append(annotations, fmt.Sprintf(`"kube-proxy.%d/holder-key":"x"`, i)) // near one of ours
	}
	s := New(decode.Decoder{})
	put(s, registry.SpecsPrefix+"a", 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{`+strings.Join(annotations, ",")+`}},"spec":{"ports":[{"port":1}]}}`)
	text := log()
	if lines := strings.Count(text, "\n"); lines != maxWarnings+1 || !strings.Contains(text, fmt.Sprintf(": %d more warnings", n-maxWarnings)) {
		t.Errorf("%d lines; want %d, and one that counts the others:\n%.2000s", lines, maxWarnings, text)
	}
	if got := s.described(); !strings.HasSuffix(got, fmt.Sprintf("(+%d)", n-1)) {
		t.Errorf("the status says %.300q; want %d warnings", got, n)
	}
}

func TestTheListOfOddKeysIsBounded(t *testing.T) {
	s := New(decode.Decoder{})
	var all []Version
	for i := range 2 * config.MaxRejections {
		all = append(all, Version{Key: fmt.Appendf(nil, "%s%04d", registry.EndpointsPrefix, i), Value: []byte(`{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":["a"]}`), Created: 2, Revision: 2})
	}
	s.Merge(listOf(all...), 2, nil, 0)
	warnings, changed := s.warnings()
	if !changed || len(warnings) != config.MaxRejections || s.odd.all != len(all) {
		t.Fatalf("%d are listed of %d; want %d of %d", len(warnings), s.odd.all, config.MaxRejections, len(all))
	}
	for i := range config.MaxRejections + 50 {
		s.Remove(all[i].Key)
	}
	s.Merge(s.sifted(all[config.MaxRejections+50:]...), 3, nil, 2)
	if warnings, _ := s.warnings(); len(warnings) != config.MaxRejections-50 {
		t.Errorf("then %d are listed; want the %d that are left", len(warnings), config.MaxRejections-50)
	}
}
