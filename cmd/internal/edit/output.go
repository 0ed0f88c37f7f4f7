package edit

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"kubeproxy/cmd/internal/inert"
	"kubeproxy/registry"
)

// An Output prints records, and what was done with them: as text, or as JSON, a line each.
type Output struct {
	To   io.Writer
	JSON bool
}

// A Record is what etcd holds under a key.
type Record struct {
	Key      string   `json:"key"`
	Revision int64    `json:"revision"`
	Lease    *int64   `json:"lease_seconds,omitempty"` // until it ends, if there is one and it was asked for
	Holds    []string `json:"holds"`                   // ports, or endpoints
	Warnings []string `json:"warnings,omitempty"`
	Error    string   `json:"error,omitempty"` // why nodes do not take it
}

// What is done with a record.
const (
	wrote   = "wrote"
	deleted = "deleted"
	kept    = "kept" // it says already what was wanted
)

// A Change is what was done with a record.
type Change struct {
	Did      string `json:"did"` // wrote, deleted or kept
	Key      string `json:"key"`
	Revision int64  `json:"revision"`
	Before   string `json:"weights_before,omitempty"`
	After    string `json:"weights,omitempty"`
	Note     string `json:"note,omitempty"` // what else comes of it
}

// print prints what was done.
func (o Output) print(c Change) error {
	if o.JSON {
		return o.line(c)
	}
	text := fmt.Sprintf("%s %s at revision %d", c.Did, registry.Label(c.Key), c.Revision)
	if c.Before != "" || c.After != "" {
		text += fmt.Sprintf(": weights %s → %s", cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"))
	}
	if c.Note != "" {
		text += ": " + c.Note
	}
	_, err := fmt.Fprintln(inert.Writer(o.To), text)
	return err
}

func (o Output) line(value any) error {
	line, err := inert.Line(value)
	if err != nil {
		return err
	}
	_, err = o.To.Write(line)
	return err
}

// A table prints records.
type table struct {
	to     Output
	leases bool // there is a column for them
	text   *tabwriter.Writer
	n      int
}

func (o Output) table(leases bool) *table {
	t := &table{to: o, leases: leases, text: tabwriter.NewWriter(inert.Writer(o.To), 0, 0, 2, ' ', 0)}
	if !o.JSON {
		fmt.Fprint(t.text, "RECORD\tREVISION\t")
		if leases {
			fmt.Fprint(t.text, "LEASE\t")
		}
		fmt.Fprintln(t.text, "HOLDS")
	}
	return t
}

func (t *table) add(r *Record) error {
	t.n++
	if t.to.JSON {
		return t.to.line(r)
	}
	fmt.Fprintf(t.text, "%s\t%d\t", registry.Label(r.Key), r.Revision)
	if t.leases {
		lease := "-"
		if r.Lease != nil {
			lease = (time.Duration(*r.Lease) * time.Second).String()
		}
		fmt.Fprintf(t.text, "%s\t", lease)
	}
	holds := r.Holds
	for _, w := range r.Warnings {
		holds = append(holds[:len(holds):len(holds)], "warning: "+w)
	}
	if r.Error != "" {
		holds = []string{"error: " + r.Error}
	}
	_, err := fmt.Fprintln(t.text, cmp.Or(strings.Join(holds, ", "), "nothing"))
	return err
}

// flush writes the lines so far, whose columns are as wide as each other's.
func (t *table) flush() error { return t.text.Flush() }
