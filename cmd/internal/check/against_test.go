package check

import (
	"slices"
	"testing"

	"kubeproxy/registry"
)

// TestTwoRegistriesAreCompared: each difference is an error of its own, and what no proxy reads is none.
func TestTwoRegistriesAreCompared(t *testing.T) {
	web := Record{Key: registry.SpecsPrefix + "web", Value: []byte(`{"port": 8000}`), Created: 5, Modified: 5}
	at := func(r Record, created int64) Record {
		r.Created, r.Modified = created, created
		return r
	}
	rewritten := web
	rewritten.Value, rewritten.Modified = []byte(`{"port":8000,"protocol":"TCP"}`), 9
	spaced := web
	spaced.Value = []byte("{ \"port\":\t8000 }\n")
	rival := Record{Key: registry.SpecsPrefix + "rival", Value: web.Value, Created: 7, Modified: 7}
	foreign := Record{Key: registry.Prefix + "else", Value: []byte("x")}
	binary, other := Record{Key: web.Key, Value: []byte("k8s\x00a")}, Record{Key: web.Key, Value: []byte("k8s\x00b")}
	for _, c := range []struct {
		name        string
		here, there []Record
		before      [][]Record // what was read the first time, of each
		want        map[string]Code
	}{
		{"the same", []Record{web, rival}, []Record{rival, web}, nil, nil},
		{"empty ones", nil, nil, nil, nil},
		{"one is empty", []Record{web}, nil, nil, map[string]Code{web.Key: OnlyHere}},
		{"the other is empty", nil, []Record{web}, nil, map[string]Code{web.Key: OnlyThere}},
		{"each has one more", []Record{web}, []Record{rival}, nil, map[string]Code{web.Key: OnlyHere, rival.Key: OnlyThere}},
		{"a value is another", []Record{web}, []Record{rewritten}, nil, map[string]Code{web.Key: AnotherValue}},
		{"values differ in white space", []Record{web}, []Record{spaced}, nil, nil},
		{"values that are no JSON", []Record{binary}, []Record{other}, nil, map[string]Code{web.Key: AnotherValue}},
		{"keys were created in another order", []Record{web, rival}, []Record{at(web, 8), rival}, nil, map[string]Code{web.Key: AnotherOwner, rival.Key: AnotherOwner}},
		{"a directory knows no order", []Record{web, rival}, []Record{at(web, 0), at(rival, 0)}, nil, nil},
		{"a foreign key is missing", []Record{foreign}, nil, nil, nil},
		{"a foreign key is there alone", nil, []Record{foreign}, nil, nil},
		{"it is written here", []Record{rewritten}, []Record{web}, [][]Record{{web}, {web}}, map[string]Code{web.Key: BeingWritten}},
		{"it is written there", []Record{web}, []Record{rewritten}, [][]Record{{web}, {web}}, map[string]Code{web.Key: BeingWritten}},
		{"it is created here", []Record{web}, nil, [][]Record{nil, nil}, map[string]Code{web.Key: BeingWritten}},
		{"it is deleted there", []Record{web}, nil, [][]Record{{web}, {web}}, map[string]Code{web.Key: BeingWritten}},
		{"it stays another", []Record{web}, []Record{rewritten}, [][]Record{{web}, {rewritten}}, map[string]Code{web.Key: AnotherValue}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before []Registry
			for _, records := range c.before {
				before = append(before, Registry{Records: records})
			}
			r := Compare(Registry{Source: "here", Records: c.here}, Registry{Source: "there", Records: c.there}, Options{}, before...)
			got := make(map[string]Code)
			for _, v := range r.Records {
				for _, f := range v.Findings {
					if !slices.Contains([]Code{OnlyHere, OnlyThere, AnotherValue, AnotherOwner, BeingWritten}, f.Code) {
						continue
					}
					if got[v.Key] = f.Code; (f.Level == Error) == (f.Code == BeingWritten) || f.Level == Error && v.Verdict != Error {
						t.Errorf("%s: %+v, verdict %s", v.Key, f, v.Verdict)
					}
				}
			}
			for key, code := range got {
				if c.want[key] != code {
					t.Errorf("%s: %s, want %q", key, code, c.want[key])
				}
			}
			if len(got) != len(c.want) || r.Differs() != (len(c.want) > 0) {
				t.Errorf("found %v, want %v; differs: %v", got, c.want, r.Differs())
			}
			if s := r.Summary; s.Records != len(r.Records) || s.OK+s.Ignored+s.Warnings+s.Errors != s.Records || r.Against != "there" {
				t.Errorf("%+v of %d records, against %q", s, len(r.Records), r.Against)
			}
		})
	}
}
