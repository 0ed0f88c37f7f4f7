package check

import (
	"errors"
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
	spaced, torn, twice := web, web, web
	spaced.Value = []byte("{ \"port\":\t8000 }\n")
	torn.Value = []byte(`{"port": 8000}}`)
	twice.Value = []byte(`{"port": 8000, "Port": 8000}`)
	unread := Record{Key: web.Key, Err: errors.New("it is a link")}
	unreadElse := Record{Key: registry.Prefix + "else", Err: errors.New("it is a link")}
	aside := Record{Key: registry.SpecsPrefix + "web.bak", LeftOut: true}
	live := Record{Key: aside.Key, Value: []byte(`{"port":8001}`), Created: 6, Modified: 6}
	late := Record{Key: registry.SpecsPrefix + "late", Value: web.Value, Created: 3, Modified: 3}
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
		{"more follows the value", []Record{web}, []Record{torn}, nil, map[string]Code{web.Key: AnotherValue}},
		{"a field is there twice", []Record{web}, []Record{twice}, nil, map[string]Code{web.Key: AnotherValue}},
		{"both have one age, and the same owner", []Record{web, at(rival, 5)}, []Record{at(web, 6), at(rival, 5)}, nil, nil},
		{"who has the port now is written there", []Record{web}, []Record{web, late}, [][]Record{{web}, {web}}, map[string]Code{web.Key: BeingWritten, late.Key: BeingWritten}},
		{"it cannot be read here", []Record{unread}, []Record{web}, nil, nil},
		{"it cannot be read there", []Record{web}, []Record{unread}, nil, map[string]Code{web.Key: AnotherValue}},
		{"a foreign name cannot be read here", []Record{unreadElse}, nil, nil, nil},
		{"a file here is left out, and is a record there", []Record{aside}, []Record{live}, nil, map[string]Code{live.Key: OnlyThere}},
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
			here, there := Registry{Source: "here", Records: c.here}, Registry{Source: "there", Records: c.there}
			written := make(map[string]bool)
			if c.before != nil {
				noteWritten(written, Registry{Records: c.before[0]}, here)
				noteWritten(written, Registry{Records: c.before[1]}, there)
			}
			r := Compare(here, there, Options{}, written)
			if alone := Examine(here, Options{}); alone.Failed(false) && !r.Failed(false) {
				t.Errorf("%+v has no error, and has one without the comparison", r)
			}
			got := make(map[string]Code)
			for _, v := range r.Records {
				if len(v.Findings) > 1 && slices.ContainsFunc(v.Findings[1:], func(f Finding) bool { return f.isDifference() }) {
					t.Errorf("a difference does not come first: %+v", v.Findings)
				}
				for _, f := range v.Findings {
					if !f.isDifference() {
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
			if len(got) != len(c.want) || r.differs() != (len(c.want) > 0) {
				t.Errorf("found %v, want %v; differs: %v", got, c.want, r.differs())
			}
			if s := r.Summary; s.Records != len(r.Records) || s.OK+s.Ignored+s.Warnings+s.Errors != s.Records || r.Against != "there" {
				t.Errorf("%+v of %d records, against %q", s, len(r.Records), r.Against)
			}
		})
	}
}
