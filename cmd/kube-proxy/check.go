package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/check"
	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdv2source"
	"kubeproxy/proxy"
	"kubeproxy/registry"
)

// checkOptions is what "kube-proxy check" was asked for: what the proxy itself may be asked for, so
// that the command line of a node can be given as it is, and a few things more.
type checkOptions struct {
	options
	directory string // instead of etcd
	against   commandline.List
	timeout   time.Duration
	output    string
	strict    bool
}

// flagsForCheck are the flags of the proxy that make a difference to a check. The others are taken and do nothing.
var flagsForCheck = []string{
	"help", "version", "config", "o", "strict", "timeout", "against", "service_port", "service_address", "bind_address", "node_name", "node_zone",
	"allowed_ports", "allowed_listen", "allowed_endpoints", "healthz_bind_address", "metrics_bind_address", "metrics_only_bind_address",
	"etcd_servers", "etcd_config", "etcd_version", "etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_insecure_skip_tls_verify",
	"etcd_username", "etcd_password_file", "registry_dir", "holder_keys", "patroni",
}

func newCheck() *checkOptions {
	return &checkOptions{options: *defaults(), timeout: 10 * time.Second, output: outputText}
}

// runCheck is the program when its first argument is "check": without that word.
func runCheck(args []string, stdout, stderr io.Writer) int {
	o := newCheck()
	if status, done := begin(o.commandLine(), args, stdout, stderr); done {
		return status
	}
	report, err := o.report(inert.Writer(stderr))
	if err == nil {
		write := report.WriteText
		if o.output == outputJSON {
			write = report.WriteJSON
		}
		err = write(stdout)
	}
	if err != nil {
		fmt.Fprintln(inert.Writer(stderr), "kube-proxy check:", err) // what answers in the place of etcd chooses its words
		return exitFailed
	}
	if report.Failed(o.strict) {
		return exitFailed
	}
	return exitDone
}

func (o *checkOptions) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy check", "[DIRECTORY]", "judges records as a proxy with these flags would, and exits with 1 if one is wrong", o.examine)
	o.addFlags(c)
	c.Group(commandline.General, func(f *pflag.FlagSet) {
		f.VarP(commandline.Choice(&o.output, outputText, outputJSON), "o", "o", "`format` of the report of kube-proxy check: text or json")
		f.Var(&o.against, "against", "another `registry` to compare with: the URLs of its etcd, separated by commas, or its directory")
		f.BoolVar(&o.strict, "strict", false, "exit with 1 if there are warnings, too")
		f.Var(commandline.Positive(&o.timeout), "timeout", "how long to wait for etcd, in all")
	})
	c.Show(flagsForCheck)
	return c
}

// examine looks at the arguments, and whether the flags go together.
func (o *checkOptions) examine(flags *pflag.FlagSet) error {
	if err := o.readConfig(flags); err != nil {
		return err
	}
	o.directory = cmp.Or(flags.Arg(0), o.source.files.dir)
	etcd := o.source.etcd.given()
	switch {
	case flags.NArg() > 1 && strings.HasPrefix(flags.Arg(1), "-"):
		return fmt.Errorf("unexpected argument: %s (flags come before the directory)", commandline.OneLine(flags.Arg(1)))
	case flags.NArg() > 1:
		return fmt.Errorf("unexpected argument: %s (one directory at a time)", commandline.OneLine(flags.Arg(1)))
	case flags.NArg() == 1 && flags.Arg(0) == "":
		return errors.New("the directory has no name")
	case flags.NArg() == 1 && o.source.files.given():
		return errors.New("a directory and -registry_dir are mutually exclusive")
	case o.directory != "" && etcd:
		return errors.New("an etcd and a directory are mutually exclusive")
	case o.directory == "" && !etcd:
		return errors.New("nothing to check: give -etcd_servers, -etcd_config or a directory")
	case !o.againstEtcd() && len(o.against) > 1:
		return fmt.Errorf("-against: one directory at a time, or URLs, which have a scheme: %s", commandline.OneLine(o.against.String()))
	}
	if o.directory != "" && !o.againstEtcd() {
		return nil
	}
	if o.againstEtcd() {
		if _, err := etcdsource.New(etcdsource.Config{Endpoints: o.against}); err != nil {
			return fmt.Errorf("-against: %w", err)
		}
	}
	return o.source.etcd.contradiction()
}

// againstEtcd reports whether -against names an etcd. If it does not, and is given, it names a directory.
func (o *checkOptions) againstEtcd() bool {
	return slices.ContainsFunc(o.against, func(s string) bool { return strings.Contains(s, "://") })
}

// otherRegistry reads what -against names. The settings of an etcd are those of the first but for the URLs.
func (o *checkOptions) otherRegistry(ctx context.Context, notes io.Writer) (check.Registry, error) {
	if !o.againstEtcd() {
		return check.FromDirectory(o.against[0])
	}
	cfg, err := o.source.etcd.configFor(o.against, o.source.sync)
	if err != nil {
		return check.Registry{}, err
	}
	return o.fromEtcd(ctx, cfg, notes)
}

// report reads the registry and judges it. What there is to say about etcd goes to notes.
func (o *checkOptions) report(notes io.Writer) (*check.Report, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.timeout, fmt.Errorf("no answer for %v", o.timeout))
	defer cancel()
	served := o.guards()
	read := func(io.Writer) (check.Registry, error) { return check.FromDirectory(o.directory) }
	if o.directory == "" {
		etcd, err := o.source.etcdConfig()
		if err != nil {
			return nil, err
		}
		served.EtcdPorts = etcd.LocalPorts(ctx)
		read = func(notes io.Writer) (check.Registry, error) { return o.fromEtcd(ctx, etcd, notes) }
	}
	r, err := read(notes)
	if err != nil {
		return nil, err
	}
	limit, _, room := proxy.DescriptorRoom()
	var local proxy.PortRange
	if first, last, ok := proxy.LocalPorts(); ok {
		local = proxy.PortRange{First: first, Last: last}
	}
	decoder := o.source.decoder()
	if !o.source.files.given() && !r.IsEtcd2 { // a node of such a source refuses keys that elect
		decoder.HolderKeys, decoder.Patroni = o.source.etcd.holderKeys, o.source.etcd.patroni
	}
	options := check.Options{
		Bind:            served.BindAddress,
		Operators:       served.ReservedPorts,
		Decoder:         decoder,
		RefusePort:      served.Refusal,
		AllowEndpoint:   served.Allows,
		HasAddress:      proxy.HasAddress,
		DescriptorLimit: limit,
		ListenerRoom:    room,
		LocalPorts:      local,
	}
	if len(o.against) > 0 {
		return check.Against(r, func() (check.Registry, error) { return read(io.Discard) }, func() (check.Registry, error) {
			other, err := o.otherRegistry(ctx, notes)
			notes = io.Discard // what there is to note has been noted
			if err != nil {
				err = fmt.Errorf("-against: %w", err)
			}
			return other, err
		}, options)
	}
	return check.Examine(r, options), nil
}

// guards is what the proxy would be told to keep from services, the ports of its operators included. A
// port 0 of theirs is one that is not known yet.
func (o *checkOptions) guards() proxy.Config {
	served := o.proxyConfig()
	for _, at := range [...]netip.AddrPort{o.operators.Healthz, o.operators.Metrics, o.operators.MetricsOnly} {
		if port := at.Port(); port != 0 {
			served.ReservedPorts = append(served.ReservedPorts, port)
		}
	}
	return served
}

// fromEtcd reads the registry of an etcd, as it is now. That it is an old etcd, and why, is noted as the proxy logs it.
func (o *checkOptions) fromEtcd(ctx context.Context, cfg etcdsource.Config, notes io.Writer) (check.Registry, error) {
	complete, err := cfg.Complete()
	if err != nil {
		return check.Registry{}, err
	}
	var found etcdv2source.Verdict
	var known bool
	if o.source.etcd.version == etcdAuto {
		found, known = etcdv2source.FindVersion(ctx, complete)
	}
	if found.Major == 2 { // which is not what most expect
		fmt.Fprintf(notes, "reading %v\n", found)
	}
	if o.source.etcd.version == etcd2 || found.Major == 2 {
		return fromEtcd2(ctx, cfg)
	}
	snapshot, err := etcdsource.Read(ctx, cfg)
	if err != nil {
		return check.Registry{}, fmt.Errorf("read etcd at %v: %w", cfg.Endpoints, err)
	}
	r := check.Registry{Source: fmt.Sprintf("etcd at %v", cfg.Endpoints), Revision: snapshot.Revision}
	empty := true
	for _, k := range snapshot.Keys {
		r.Records = append(r.Records, check.Record{Key: string(k.Key), Value: k.Value, Created: k.Created, Modified: k.Revision})
		_, err := registry.ParseKey(string(k.Key))
		empty = empty && errors.Is(err, registry.ErrForeign)
	}
	if empty && known {
		if hint := found.OldRegistry(ctx, complete); hint != "" {
			fmt.Fprintln(notes, hint)
		}
	}
	return r, nil
}

// fromEtcd2 reads the registry of an etcd by its v2 API.
func fromEtcd2(ctx context.Context, cfg etcdsource.Config) (check.Registry, error) {
	keys, index, err := etcdv2source.Read(ctx, cfg)
	if err != nil {
		return check.Registry{}, fmt.Errorf("read etcd 2 at %v: %w", cfg.Endpoints, err)
	}
	r := check.Registry{Source: fmt.Sprintf("etcd 2 at %v", cfg.Endpoints), Revision: index, IsEtcd2: true}
	for _, k := range keys {
		r.Records = append(r.Records, check.Record{Key: k.Key, Value: []byte(k.Value), Created: k.Created, Modified: k.Modified})
	}
	return r, nil
}

// Values of -o.
const (
	outputText = "text"
	outputJSON = "json"
)
