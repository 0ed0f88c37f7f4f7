package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"kubeproxy/registry"
)

// Compare reports what a proxy would do with the records of one registry, as [Examine] does, and in what another one differs from it: a key
// that only one of them has, a value that is another, and a port that another service has there. Each of these is an error, but for keys that
// no proxy reads.
//
// The two are not read at one moment. So they are read twice, if they differ: here and there are what was read last, and before is what was
// read the first time, here and then there. A difference in a key that was written in between is no error. Without before, each difference is.
func Compare(here, there Registry, o Options, before ...Registry) *Report {
	r := Examine(here, o)
	r.Against = there.Source
	var moving map[string]bool
	if len(before) == 2 {
		moving = make(map[string]bool)
		noteChanges(moving, before[0], here)
		noteChanges(moving, before[1], there)
	}
	mine, theirs := sorted(here.Records), sorted(there.Records)
	judged := Examine(there, o).Records // in the order of theirs
	var all []Verdict
	for i, j := 0, 0; i < len(mine) || j < len(theirs); {
		side := 0
		switch {
		case i == len(mine):
			side = 1
		case j == len(theirs):
			side = -1
		default:
			side = cmp.Compare(mine[i].Key, theirs[j].Key)
		}
		switch {
		case side < 0:
			v := r.Records[i]
			v.differs(&mine[i], moving, OnlyHere, "not in "+there.Source)
			all = append(all, v)
			i++
		case side > 0:
			v := judged[j]
			v.Verdict, v.Holds, v.Findings = OK, "", []Finding{}
			v.differs(&theirs[j], moving, OnlyThere, "only in "+there.Source)
			all = append(all, v)
			j++
		default:
			v := r.Records[i]
			switch {
			case !sameValue(mine[i].Value, theirs[j].Value):
				v.differs(&mine[i], moving, AnotherValue, "another value in "+there.Source)
			case mine[i].Created == 0 || theirs[j].Created == 0: // a directory does not say who was first
			case v.conflict() != judged[j].conflict():
				v.differs(&mine[i], moving, AnotherOwner, "the same value in "+there.Source+", where "+cmp.Or(judged[j].conflict(), "no other service has its ports"))
			}
			all = append(all, v)
			i++
			j++
		}
	}
	r.Records = all
	r.count()
	return r
}

// Differs reports whether one of the findings is a difference, or would be one if its key had not been written meanwhile.
func (r *Report) Differs() bool {
	return slices.ContainsFunc(r.Records, func(v Verdict) bool {
		return slices.ContainsFunc(v.Findings, func(f Finding) bool {
			switch f.Code {
			case OnlyHere, OnlyThere, AnotherValue, AnotherOwner, BeingWritten:
				return true
			}
			return false
		})
	})
}

// differs adds a difference, unless no proxy reads the key.
func (v *Verdict) differs(of *Record, moving map[string]bool, code Code, text string) {
	if _, err := registry.ParseKey(of.Key); of.LeftOut || errors.Is(err, registry.ErrForeign) {
		v.Verdict = Ignored
		return
	}
	if moving[of.Key] {
		v.find(Info, BeingWritten, text+"; it was written while the two were read")
		return
	}
	v.find(Error, code, text)
}

// conflict is what is said of the ports that another service has; "" if nothing is.
func (v *Verdict) conflict() string {
	for _, f := range v.Findings {
		if f.Code == PortConflict {
			return f.Text
		}
	}
	return ""
}

// noteChanges adds the keys whose value is not the same in both.
func noteChanges(moving map[string]bool, before, after Registry) {
	was := make(map[string]*Record, len(before.Records))
	for i := range before.Records {
		was[before.Records[i].Key] = &before.Records[i]
	}
	for i := range after.Records {
		now := &after.Records[i]
		if b := was[now.Key]; b == nil || b.Modified != now.Modified || !bytes.Equal(b.Value, now.Value) {
			moving[now.Key] = true
		}
		delete(was, now.Key)
	}
	for key := range was {
		moving[key] = true
	}
}

// sameValue reports whether two values are the same, or are JSON that says the same.
func sameValue(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decodeExactly(a, &x) && decodeExactly(b, &y) && reflect.DeepEqual(x, y)
}

// decodeExactly decodes JSON without rounding its numbers.
func decodeExactly(text []byte, into *any) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into) == nil && !d.More()
}
