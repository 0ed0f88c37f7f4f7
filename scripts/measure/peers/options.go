//go:build linux

package peers

import (
	"flag"
	"slices"
	"strings"
	"time"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

const about = `
Measures kube-proxy beside HAProxy, nginx and no proxy at all, in rounds of random order, and prints for each
row what each one did and the ratios within a round. "measure self" leaves the peers out.

The numbers in roundtrip-N, bulk-N, udp-N (clients) and rate-N (percent of what direct carries) can be others.

What has to be installed, on Debian: apt-get install -y --no-install-recommends haproxy nginx-light libnginx-mod-stream
(and, if that starts them: systemctl disable --now haproxy nginx). What is missing is left out, and named.
It needs a descriptor limit of 20,000 (ulimit -n) for the idle row, and no privileges. As root it runs in a network
namespace of its own, where nobody else's firewall takes part.
`

// options is the command line.
type options struct {
	measure.Options
	rows           []row
	peers          []string // nil: all that are installed
	variants       []variant
	old            string // the binary that the measured one is compared with; empty: none
	viewers        int    // of the status page of the last variant
	base           string // the variant that figures are held against; empty: none
	warm, measured time.Duration
	judge          bool
	clients        []load.Clients
	fewerBy        int // of how many connections, sessions and datagrams some rows are made of
}

func parseOptions(name string, args []string) (options, error) {
	var o options
	f := o.FlagSet(name, about, 15, 0)
	f.Lookup("limit").Usage = "give up after this `time` (default 15m, with -all 60m)"
	all := f.Bool("all", false, "also the rows that are not in the default: "+strings.Join(moreRows, ", "))
	measure.List(f, "only", &o.rows, "just these `ROW,...` (default "+strings.Join(defaultRows, ",")+")", rowNamed)
	if name == "peers" {
		measure.List(f, "peers", &o.peers, "beside whom: `NAME,...` of haproxy, nginx, direct (default: all that are installed); none for nobody",
			measure.OneOf("haproxy", "nginx", "direct"))
	}
	self := f.String("self", "kube-proxy=", "kube-proxies to measure, `NAME=[BINARY] FLAGS;...`, each with flags of its own (and a binary of its own, if its first word does not\n"+
		"begin with a dash); {ip} stands for the address that it alone listens on. Later ones are also compared with the first")
	f.StringVar(&o.old, "old", "", "compare kube-proxy with this earlier build of it, a `FILE`, as -self='old=FILE;new=' does; a figure of the new one\n"+
		"that is more than 3 % worse misses its bar")
	f.IntVar(&o.viewers, "viewers", 0, "let `N` viewers follow the status page of the last kube-proxy, by default of the second of two that are alike; a figure of it\n"+
		"that is more than 3 % worse misses its bar")
	f.DurationVar(&o.measured, "time", time.Second, "how long each proxy is measured in each round, a `duration`")
	f.DurationVar(&o.warm, "warm", 200*time.Millisecond, "how long it works before that, a `duration`")
	o.clients = []load.Clients{load.Light}
	measure.List(f, "clients", &o.clients, "how clients and backends of roundtrip-N, connect-reset, connect-fin and udp-N are written, `KIND,...`: light (one thread,\n"+
		"a loop over epoll; the default), goroutines (one for each connection, package net)", func(text string) (load.Clients, error) {
		kind, err := measure.OneOf(string(load.Light), string(load.Goroutines))(text)
		return load.Clients(kind), err
	})
	f.BoolVar(&o.judge, "judge", false, "end with exit status 1 also when a figure does not reach its bar")
	f.IntVar(&o.fewerBy, "fewer", 1, "let burst, failing and the churns be made of an `N`th, to try them out")
	if err := measure.Parse(f, args); err != nil {
		return o, err
	}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if name == "self" || (o.old != "" || o.viewers > 0) && !given["peers"] || given["peers"] && o.peers == nil {
		o.peers = []string{"none"}
	}
	if o.Limit == 0 {
		o.Limit = 15 * time.Minute * time.Duration(max(1, len(o.clients)))
		if *all {
			o.Limit = time.Hour
		}
	}
	if err := o.check(*all && given["only"], given["self"]); err != nil {
		return o, err
	}
	if err := o.takeRows(*all); err != nil {
		return o, err
	}
	switch {
	case o.old != "":
		*self = "old=" + o.old + ";new="
	case o.viewers > 0 && !given["self"]:
		*self = "alone=;viewed="
	}
	var err error
	if o.variants, err = parseVariants(*self); err != nil {
		return o, measure.Usage("%w", err)
	}
	if o.old != "" || o.viewers > 0 {
		o.base = o.variants[0].name
		o.variants[len(o.variants)-1].viewers = o.viewers
	}
	return o, nil
}

// check reports what makes no sense. Both: all rows are wanted, and only some; self: there are variants.
func (o *options) check(both, self bool) error {
	switch {
	case o.Rounds < 1 || o.measured <= 0 || o.warm <= 0 || o.fewerBy < 1:
		return measure.Usage("-rounds, -time, -warm and -fewer have to be positive")
	case both:
		return measure.Usage("-all and -only contradict each other")
	case o.old != "" && (self || !slices.Equal(o.peers, []string{"none"})):
		return measure.Usage("-old contradicts -self and -peers")
	case o.viewers < 0 || o.viewers > 0 && o.old != "":
		return measure.Usage("-viewers has to be positive, and contradicts -old")
	}
	return nil
}

// takeRows takes the default rows, and perhaps the others, unless some were named; with each kind of clients that is wanted.
func (o *options) takeRows(all bool) error {
	if o.rows == nil {
		if err := o.takeDefaultRows(all); err != nil {
			return err
		}
	}
	rows := o.rows
	if !slices.Contains(o.clients, load.Light) {
		o.rows = nil
	}
	if slices.Contains(o.clients, load.Goroutines) {
		for _, r := range rows {
			if r.either {
				o.rows = append(o.rows, r.byGoroutines())
			}
		}
	}
	if len(o.rows) == 0 {
		return measure.Usage("no row is left for -clients")
	}
	return nil
}

func (o *options) takeDefaultRows(all bool) error {
	names := defaultRows
	if all {
		names = slices.Concat(defaultRows, moreRows)
	}
	for _, name := range names {
		r, err := rowNamed(name)
		if err != nil {
			return err
		}
		o.rows = append(o.rows, r)
	}
	return nil
}
