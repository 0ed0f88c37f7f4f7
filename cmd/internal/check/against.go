package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"kubeproxy/registry"
)

// betweenReads is how long two registries that differ have to become the same: what carries changes from one to the other takes a while.
const betweenReads = time.Second

// Against reads another registry, and reports what a proxy would do with the records of the first, and in what the other differs: see
// [Compare]. If they differ, both are read again after a second.
func Against(first Registry, readFirst, readOther func() (Registry, error), o Options) (*Report, error) {
	other, err := readOther()
	if err != nil {
		return nil, err
	}
	report := Compare(first, other, o, nil)
	if !report.differs() {
		return report, nil
	}
	time.Sleep(betweenReads)
	firstAgain, err := readFirst()
	if err != nil {
		return nil, err
	}
	otherAgain, err := readOther()
	if err != nil {
		return nil, err
	}
	written := make(map[string]bool)
	noteWritten(written, first, firstAgain)
	noteWritten(written, other, otherAgain)
	return Compare(firstAgain, otherAgain, o, written), nil
}

// Compare reports what a proxy would do with the records of one registry, as [Examine] does, and in what another registry differs: a key
// that only one of them has, a value that is another, and a port that another service has there. Each of these is an error, but for a key
// that was written while the two were read, which cannot be read at one moment. Keys that no proxy reads are not compared.
func Compare(here, there Registry, o Options, written map[string]bool) *Report {
	x, y := examine(here, o), examine(there, o)
	r := x.report(here)
	r.Against = there.Source
	theirs := make(map[string]*Record, len(there.Records))
	for i := range there.Records {
		if k := &there.Records[i]; !k.LeftOut {
			theirs[k.Key] = k
		}
	}
	type row struct {
		key     string
		verdict Verdict
	}
	var rows []row
	for i, k := range sorted(here.Records) {
		v, other := r.Records[i], theirs[k.Key]
		if !k.LeftOut {
			delete(theirs, k.Key)
		}
		switch {
		case k.LeftOut || k.Err != nil || isForeign(k.Key):
		case other == nil:
			v.differs(written[k.Key], OnlyHere, "not in "+there.Source)
		case other.Err != nil:
			v.differs(written[k.Key], AnotherValue, "cannot be read in "+there.Source)
		case !sameValue(k.Value, other.Value):
			v.differs(written[k.Key], AnotherValue, "another value in "+there.Source)
		default:
			x.compareOwners(y, k.Key, &v, there.Source, written)
		}
		rows = append(rows, row{k.Key, v})
	}
	for key := range theirs {
		if isForeign(key) {
			continue
		}
		v := Verdict{Key: showKey(key), Verdict: OK, Findings: []Finding{}}
		if parsed, err := registry.ParseKey(key); err == nil {
			v.Kind, v.Name = parsed.Kind.String(), parsed.Name.String()
		}
		v.differs(written[key], OnlyThere, "only in "+there.Source)
		rows = append(rows, row{key, v})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	r.Records = make([]Verdict, len(rows))
	for i := range rows {
		r.Records[i] = rows[i].verdict
	}
	r.count()
	return r
}

// compareOwners reports the ports of a service that another service has in y. A directory does not say which value is older, so there
// nothing is compared.
func (x *examination) compareOwners(y *examination, key string, v *Verdict, there string, written map[string]bool) {
	parsed, err := registry.ParseKey(key)
	s, t := x.services[parsed.Name], y.services[parsed.Name]
	if err != nil || parsed.Kind != registry.KindService || s == nil || t == nil || s.key != key || s.modified == 0 || t.modified == 0 {
		return
	}
	var ports list
	moving := false
	for _, p := range s.Service.Ports {
		a, b := x.owners[p.ID()], y.owners[p.ID()]
		if a == nil || b == nil || a.Service.Name == b.Service.Name {
			continue
		}
		ports.add(func() string { return p.ID().Short() + " belongs to " + b.Service.Name.String() })
		moving = moving || written[a.key] || written[b.key]
	}
	if ports.count > 0 {
		v.differs(moving, AnotherOwner, "the same value in "+there+", where "+ports.String())
	}
}

// differs adds a difference, before all that is said of the record itself.
func (v *Verdict) differs(written bool, code Code, text string) {
	before := v.Findings
	v.Findings = nil
	if written {
		v.find(Info, BeingWritten, text+"; it was written while the two were read")
	} else {
		v.find(Error, code, text)
	}
	v.Findings = append(v.Findings, before...)
}

// differs reports whether there is a difference.
func (r *Report) differs() bool {
	return slices.ContainsFunc(r.Records, func(v Verdict) bool { return len(v.Findings) > 0 && v.Findings[0].isDifference() })
}

func (f *Finding) isDifference() bool {
	return slices.Contains([]Code{OnlyHere, OnlyThere, AnotherValue, AnotherOwner, BeingWritten}, f.Code)
}

// noteWritten adds the keys that are not the same in both.
func noteWritten(written map[string]bool, before, after Registry) {
	was := make(map[string]*Record, len(before.Records))
	for i := range before.Records {
		was[before.Records[i].Key] = &before.Records[i]
	}
	for i := range after.Records {
		now := &after.Records[i]
		if b := was[now.Key]; b == nil || b.Modified != now.Modified || !bytes.Equal(b.Value, now.Value) {
			written[now.Key] = true
		}
		delete(was, now.Key)
	}
	for key := range was {
		written[key] = true
	}
}

// isForeign reports whether no proxy reads a key.
func isForeign(key string) bool {
	_, err := registry.ParseKey(key)
	return errors.Is(err, registry.ErrForeign)
}

// sameValue reports whether two values are the same, or JSON that differs in white space alone.
func sameValue(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
