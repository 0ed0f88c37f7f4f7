package verbs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/registry"
)

// newStatus is for "kube-proxy status", which says what the status page says. It ends with Problem if something is wrong.
func newStatus() *Verb {
	v := newVerb("status", "[SERVICE]", "says what is wrong with a running node, or with one of its services, and exits with 3 if something is")
	query := make(url.Values)
	v.Examine = func(args []string) error { return oneService(args, query) }
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		var report statuspage.Report
		if err := node.Get(ctx, "/v1/status", query, &report); err != nil {
			return 0, err
		}
		status := Done
		if !report.OK {
			status = Problem
		}
		return status, v.print(stdout, &report, func(w io.Writer) { printReport(w, &report) })
	}
	return v
}

// oneService takes the name of a service, if there is one, into a query.
func oneService(args []string, query url.Values) error {
	if len(args) > 0 {
		name, err := registry.ParseName(args[0])
		if err != nil {
			return fmt.Errorf("invalid service %s: %w", commandline.OneLine(args[0]), err)
		}
		query.Set("service", name.Namespace+"/"+name.Name)
	}
	return atMost(args, 1)
}

func printReport(w io.Writer, r *statuspage.Report) {
	fmt.Fprintf(w, "%s: %s\n", r.Host, r.Verdict)
	for _, problem := range r.Problems[min(1, len(r.Problems)):] {
		fmt.Fprintf(w, "- %s\n", problem)
	}
	for _, override := range r.Overrides {
		fmt.Fprintf(w, "- %s\n", override)
	}
	if r.Figures != "" {
		fmt.Fprintln(w, r.Figures)
	}
	s := r.Service
	if s == nil {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nPORT\tNAME\tCLIENTS\tSTATE")
	for _, p := range s.Ports {
		fmt.Fprintf(table, "%s %s\t%s\t%d\t%s\n", p.Protocol, place(p.Address, p.Port), cmp.Or(p.Name, "-"), p.Active, p.State)
	}
	table.Flush()
	fmt.Fprintf(table, "\nENDPOINT\tPORT NAME\tWEIGHT\tCLIENTS\tGIVEN\tFAILURES\tSTATE (%s)\n", s.Algorithm)
	for _, e := range s.Endpoints {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", e.Address, cmp.Or(e.Port, "-"), e.Weight, e.Active, e.Given, e.Failures, e.State)
	}
	table.Flush()
	if s.More > 0 {
		fmt.Fprintf(w, "and %d more endpoints\n", s.More)
	}
}

// newLog is for "kube-proxy log", which shows the last changes of what a node serves.
func newLog() *Verb {
	v := newVerb("log", "[SERVICE]", "shows the last changes of what a running node serves, and who made them")
	query, n := make(url.Values), 20
	v.AddFlags = func(f *pflag.FlagSet) {
		f.VarP((*commandline.Count)(&n), "n", "n", "`number` of changes, of the last 1000")
	}
	v.Examine = func(args []string) error { return oneService(args, query) }
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		query.Set("n", strconv.Itoa(n))
		var log control.Log
		if err := node.Get(ctx, "/v1/log", query, &log); err != nil {
			return 0, err
		}
		return Done, v.print(stdout, &log, func(w io.Writer) { printLog(w, &log, n) })
	}
	return v
}

func printLog(w io.Writer, log *control.Log, asked int) {
	for i := range log.Changes {
		e := &log.Changes[i]
		fmt.Fprintf(w, "%s  %s\n", e.Time.Local().Format(time.DateTime), e)
	}
	switch {
	case len(log.Changes) > 0 || asked == 0:
	case log.Ever == 0:
		fmt.Fprintln(w, "no change since the first state was in force")
	default:
		fmt.Fprintln(w, "no change that is remembered is of this service")
	}
}
