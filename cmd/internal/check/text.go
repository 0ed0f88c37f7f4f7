package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// widest is how far the column of the keys may go; longer keys push the rest of their line aside.
const widest = 60

// WriteText writes a report to be read: a line for each record, what there is to say about the whole,
// and a summary. Records that are encrypted share one line, unless another registry differs in them.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	records := slices.DeleteFunc(slices.Clone(r.Records), func(v Verdict) bool {
		return slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Code == Encrypted }) && !v.Findings[0].isDifference()
	})
	width := len("RECORD")
	for _, v := range records {
		width = max(width, min(len(v.Key), widest))
	}
	if len(records) > 0 {
		fmt.Fprintf(out, "%-7s  %-*s  %s\n", "VERDICT", width, "RECORD", "WHAT IT HOLDS, AND WHAT IS WRONG WITH IT")
	}
	for _, v := range records {
		fmt.Fprintf(out, "%-7s  %-*s  %s\n", v.Verdict, width, v.Key, v.line())
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "%-7s  %s\n", f.Level, f.Text)
	}
	s := r.Summary
	at := ""
	if r.Revision > 0 {
		at = fmt.Sprintf(" at revision %d", r.Revision)
	}
	if r.Against != "" {
		at += ", against " + r.Against
	}
	fmt.Fprintf(out, "%s%s: %s: %d ok, %d ignored, %d with warnings, %d with errors; %s in force, %s\n", r.Source, at,
		count(s.Records, "record"), s.OK, s.Ignored, s.Warnings, s.Errors, count(s.Services, "service"), count(s.Listeners, "listener"))
	return out.Flush()
}

// line is what a verdict says besides its key.
func (v *Verdict) line() string {
	var said []string
	if v.Holds != "" {
		said = append(said, v.Holds)
	}
	for i, f := range v.Findings {
		if i == maxListed {
			said = append(said, fmt.Sprintf("%d more", len(v.Findings)-i))
			break
		}
		said = append(said, f.Text)
	}
	return strings.Join(said, "; ")
}

// count gives a number of things, in the singular or the plural.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// WriteJSON writes a report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	return out.Flush()
}

// addresses counts the addresses of all ports.
func addresses(byPort []registry.PortAddrs) (n int) {
	for _, p := range byPort {
		n += p.Addrs.Len()
	}
	return n
}

// weighted says that there are weights.
func weighted(w registry.Weights) string {
	if w == "" {
		return ""
	}
	return ", with weights"
}

// standingBy says how many endpoints are backups.
func standingBy(byPort []registry.PortAddrs) string {
	n := 0
	for _, p := range byPort {
		for i := range p.Addrs.Len() {
			if p.Places.At(i)&registry.Backup != 0 {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return ", " + count(n, "backup") + " among them"
}

// inZone says how many endpoints are in the zone of the node, where that is known of any.
func inZone(byPort []registry.PortAddrs) string {
	near, known := 0, false
	for _, p := range byPort {
		for i := range p.Addrs.Len() {
			at := p.Places.At(i)
			known = known || at&(registry.InZone|registry.OutOfZone) != 0
			if at&registry.InZone != 0 {
				near++
			}
		}
	}
	if !known {
		return ""
	}
	return fmt.Sprintf(", %d in this zone", near)
}

// holds tells in a few words what a record offers.
func holds(r decode.Record) string {
	switch {
	case r.Endpoints != nil:
		return count(addresses(r.Endpoints.ByPort), "endpoint") + inZone(r.Endpoints.ByPort) + standingBy(r.Endpoints.ByPort) + weighted(r.Endpoints.Weights)
	case r.Slice != nil && r.Slice.Service == "":
		return "nothing to serve"
	case r.Slice != nil:
		text := count(addresses(r.Slice.Ready), "endpoint")
		if n := addresses(r.Slice.Terminating); n > 0 {
			text += fmt.Sprintf(" and %d terminating", n)
		}
		return text + inZone(r.Slice.Ready) + standingBy(r.Slice.Ready) + weighted(r.Slice.Weights) + " of " + r.Slice.ServiceName().String()
	}
	s := r.Service
	if len(s.Ports) == 0 {
		return "nothing to serve"
	}
	var ports list
	for _, p := range s.Ports {
		ports.add(func() string {
			if p.Local {
				return p.ID().Short() + " (by endpoints on the node only)"
			}
			return p.ID().Short()
		})
	}
	text, terms := ports.String(), s.Terms()
	if terms.Affinity == registry.AffinityClientIP {
		text += fmt.Sprintf(", affinity %v for %v", terms.Affinity, terms.AffinityTimeout)
	}
	if terms.Distribution != registry.Anywhere {
		text += ", " + terms.Distribution.String()
	}
	if terms.Local {
		text += ", by endpoints on the node only"
	}
	if asked := terms.String(); asked != "" {
		text += ", " + asked
	}
	if len(terms.SourceRanges) > 0 {
		var ranges list
		for _, p := range terms.SourceRanges {
			ranges.add(p.String)
		}
		text += ", from " + ranges.String() + " only"
	}
	return text
}
