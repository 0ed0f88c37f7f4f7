package check

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"kubeproxy/proxy"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// Options say how the proxy would be run. The zero value is a proxy that listens on every address, and
// that allows everything.
type Options struct {
	Bind      netip.Addr // what its listeners bind to; the zero Addr means 0.0.0.0
	Operators []uint16   // TCP ports of its own, where it answers its operators

	Decoder decode.Decoder // how it understands records

	// RefusePort reports why a service may not have a port; nil: it may. AllowEndpoint reports whether
	// the proxy may dial an address; host names of endpoints are not looked up, and so not asked about.
	// Where there is no function, anything goes.
	RefusePort    func(registry.Name, registry.ListenerID) error
	AllowEndpoint func(netip.Addr) bool

	HasAddress func(netip.Addr) bool // reports whether this machine has an address; nil: do not compare

	DescriptorLimit int // of a process; 0: do not compare
	ListenerRoom    int // how many of them listeners may have

	LocalPorts proxy.PortRange // that the machine gives to connections; the zero value: not known
}

// An examination is one run of [Examine].
type examination struct {
	Options
	verdicts  []Verdict
	whole     []Finding
	services  map[registry.Name]*held // what is in force
	endpoints map[registry.Name]*joined
	slices    map[registry.Name][]*held // by their services
	unusable  map[object]bool           // there is a record, and it cannot be used
	encrypted list                      // the keys whose values are
	listeners int
	owners    map[registry.ListenerID]*held // the service that has each
	own       proxy.OwnListeners            // all of them, and the operators' ports
}

// An object is a service, the endpoints of one, or an endpoint slice.
type object struct {
	kind registry.Kind
	name registry.Name
}

// A held is a record that can be used, and its verdict.
type held struct {
	decode.Record
	verdict  *Verdict
	key      string
	modified int64 // the revision of its value; 0: not known
}

// A joined is what the endpoints of one service are, and the records that say so: one of endpoints, or any number of slices.
type joined struct {
	*registry.Endpoints
	from []*held
}

// Examine judges every record of a registry, and all of them together.
func Examine(r Registry, o Options) *Report { return examine(r, o).report(r) }

// examine is Examine without the report.
func examine(r Registry, o Options) *examination {
	if !o.Bind.IsValid() {
		o.Bind = netip.IPv4Unspecified()
	}
	x := &examination{
		Options:   o,
		services:  make(map[registry.Name]*held),
		endpoints: make(map[registry.Name]*joined),
		slices:    make(map[registry.Name][]*held),
		unusable:  make(map[object]bool),
		owners:    make(map[registry.ListenerID]*held),
		own:       proxy.NewOwnListeners(o.Bind, o.Operators),
	}
	stored := sorted(r.Records)
	x.verdicts = make([]Verdict, len(stored))
	for i := range stored {
		x.read(&stored[i], &x.verdicts[i])
	}
	if n := x.encrypted.count; n > 0 {
		x.say(Error, Encrypted, fmt.Sprintf("%v (%s: %s)", decode.ErrEncrypted, count(n, "value"), x.encrypted.String()))
	}
	x.joinSlices()
	x.explainEndpointsOfNobody()
	x.shareOutPorts()
	x.shareOutHealthPorts()
	x.join()
	if !slices.ContainsFunc(stored, func(r Record) bool { return !r.LeftOut }) {
		x.say(Warning, NoRecords, "there are no records: nothing is below "+registry.Prefix)
	}
	if len(r.Elsewhere) > 0 {
		var l list
		for _, name := range r.Elsewhere {
			l.add(func() string { return registry.Quote(name) })
		}
		x.say(Info, Elsewhere, "not read, because only what is below registry/services has keys: "+l.String())
	}
	return x
}

// sorted returns the records in the order of their keys.
func sorted(records []Record) []Record {
	all := slices.Clone(records)
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// read judges one record for itself, and takes it in if it can be used.
func (x *examination) read(stored *Record, v *Verdict) {
	*v = Verdict{Key: showKey(stored.Key), Verdict: OK, Findings: []Finding{}}
	if stored.LeftOut {
		v.find(Info, LeftOut, "its name is that of a hidden, temporary or backup file")
		v.Verdict = Ignored
		return
	}
	key, err := registry.ParseKey(stored.Key)
	o := object{key.Kind, key.Name}
	if err == nil {
		v.Kind, v.Name = key.Kind.String(), key.Name.String()
	}
	switch {
	case stored.Err != nil: // before all else: a directory that cannot be read is no key
		v.find(Error, Unreadable, stored.Err.Error())
		x.unusable[o] = true
		return
	case errors.Is(err, registry.ErrForeign):
		v.find(Info, ForeignKey, err.Error())
		v.Verdict = Ignored
		return
	case err != nil:
		v.find(Error, BadKey, err.Error())
		return
	}
	record, warnings, err := x.Decoder.Decode(stored.Key, stored.Value)
	v.findUnknownFields(key.Kind, stored.Value, offersNothing(record))
	if err != nil {
		code := BadRecord
		if errors.Is(err, decode.ErrEncrypted) {
			code = Encrypted
			x.encrypted.add(func() string { return v.Key })
		}
		v.find(Error, code, err.Error())
		x.unusable[o] = true
		return
	}
	for _, w := range warnings {
		v.find(Warning, OddRecord, string(w))
	}
	if record.NoNodePort > 0 {
		v.find(Info, NoNodePort, fmt.Sprintf("ports that have no nodePort are not offered: %d", record.NoNodePort))
	}
	v.Holds = holds(record)
	if record.Service != nil {
		record.Service.Created = stored.Created
		record.Service.Date(nil, cmp.Or(stored.Modified, stored.Created))
	}
	x.take(&held{record, v, stored.Key, cmp.Or(stored.Modified, stored.Created)})
}

// take puts a record in force. A flat key and a namespaced one may name the same object: then the
// namespaced one counts.
func (x *examination) take(h *held) {
	name := h.Key.Name
	switch {
	case h.Service != nil:
		x.services[name] = first(x.services[name], h)
	case h.Endpoints != nil:
		var other *held
		if e := x.endpoints[name]; e != nil {
			other = e.from[0]
		}
		h = first(other, h)
		x.endpoints[name] = &joined{h.Endpoints, []*held{h}}
	case h.Slice.Service == "":
		h.verdict.find(Info, Excluded, "its labels say that it is not for this proxy")
	default:
		x.slices[h.Slice.ServiceName()] = append(x.slices[h.Slice.ServiceName()], h)
	}
}

// first gives the one of two records that comes first, other of which may be nil.
func first(other, h *held) *held {
	if other == nil {
		return h
	}
	if h.Key.Flat {
		h, other = other, h
	}
	other.verdict.find(Warning, Shadowed, "is not in force: "+h.verdict.Key+" names the same and comes first")
	return h
}

// joinSlices puts in force what the slices of each service add up to. They come before a record of its endpoints, which Kubernetes
// goes on writing for older readers.
func (x *examination) joinSlices() {
	for name, all := range x.slices {
		parts := make([]*registry.EndpointSlice, len(all)) // in the order of their keys
		for i, h := range all {
			parts[i] = h.Slice
		}
		sum, warning := registry.JoinSlices(name, parts)
		if warning != "" {
			all[len(all)-1].verdict.find(Warning, OddRecord, string(warning))
		}
		if e := x.endpoints[name]; e != nil {
			e.from[0].verdict.find(Info, Superseded, "is not in force: its service has endpoint slices, which come first")
		}
		x.endpoints[name] = &joined{sum, all}
	}
}

// explainEndpointsOfNobody marks the endpoints that no service offers.
func (x *examination) explainEndpointsOfNobody() {
	for name, e := range x.endpoints {
		why := "there is no service of this name"
		switch {
		case x.services[name] != nil:
			continue
		case x.unusable[object{registry.KindService, name}]:
			why = "the record of its service cannot be used"
		case e.from[0].Slice != nil:
			why = "there is no service " + name.String()
		}
		for _, h := range e.from {
			h.verdict.find(Warning, NoService, why)
		}
	}
}

func (x *examination) say(level string, code Code, text string) {
	x.whole = append(x.whole, Finding{level, code, text})
}

// report counts, and puts it all together.
func (x *examination) report(r Registry) *Report {
	report := &Report{
		Source: r.Source, Revision: r.Revision,
		Records: x.verdicts, Findings: x.whole,
		Summary: Summary{Services: len(x.services), Endpoints: len(x.endpoints), Listeners: x.listeners},
	}
	if report.Findings == nil {
		report.Findings = []Finding{} // an empty list in JSON too
	}
	report.count()
	return report
}

// maxKey is how long a key may be to be shown as it is: any that a master writes.
const maxKey = len(registry.EndpointSlicesPrefix) + 63 + len("/") + 63

// showKey gives a key as it is when it can stand in a line, else quoted and cut. The two can be told
// apart: keys begin with a slash.
func showKey(key string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._/", r)
	}
	if len(key) <= maxKey && strings.TrimFunc(key, plain) == "" {
		return key
	}
	return registry.Quote(key)
}
