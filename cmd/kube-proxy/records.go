package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/edit"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/config/etcdsource"
	"kubeproxy/registry"
)

// recordOptions is what "kube-proxy get", "put" and "rm" were asked for.
type recordOptions struct {
	options // of these etcd and the version
	timeout time.Duration
	output  string
	service serviceValue

	word, args, summary string
	addOwn              func(*pflag.FlagSet) // flags of its own; may be nil
	do                  func(context.Context, *clientv3.Client, registry.Name, edit.Output) error
}

// flagsForRecords are the flags that make a difference. The others of the proxy are taken and do nothing, so that the file of -config of
// a node can be given as it is.
var flagsForRecords = append([]string{"help", "version", "config", "o", "timeout"}, flagsOfEtcd...)

// flagsOfEtcd are those that say where it is.
var flagsOfEtcd = []string{
	"etcd_servers", "etcd_config", "etcd_version", "etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_insecure_skip_tls_verify",
	"etcd_username", "etcd_password_file",
}

// anyService is what the word get takes: without a service, it is about all.
const anyService = "[SERVICE]"

// newGet is for "kube-proxy get", which prints what etcd holds about a service, or about all.
func newGet() *recordOptions {
	return newRecordOptions("get", anyService, "prints the records that etcd holds of a service, or of all",
		func(ctx context.Context, client *clientv3.Client, service registry.Name, out edit.Output) error {
			if service == (registry.Name{}) {
				return edit.List(ctx, client, out)
			}
			set, err := edit.Read(ctx, client, service)
			if err != nil {
				return err
			}
			return edit.Print(ctx, set, out)
		})
}

// newPut is for "kube-proxy put", which writes the records of a service.
func newPut() *recordOptions {
	var wish edit.Wish
	o := newRecordOptions("put", "SERVICE", "writes the records of a service into etcd, if a node would take them and nobody has changed them meanwhile",
		func(ctx context.Context, client *clientv3.Client, service registry.Name, out edit.Output) error {
			if wish.Port == 0 && wish.Protocol == "" && len(wish.Endpoints) == 0 {
				return errors.New("nothing to write: give -port, -protocol or -endpoint")
			}
			return edit.Put(ctx, client, service, wish, out)
		})
	o.addOwn = func(f *pflag.FlagSet) {
		f.Uint16Var(&wish.Port, "port", 0, "`port` of the service; as it is if not given")
		f.StringVar(&wish.Protocol, "protocol", "", "`protocol` of the service, tcp or udp; as it is if not given")
		f.StringArrayVar(&wish.Endpoints, "endpoint", nil, "`address` of an endpoint, HOST:PORT; may be repeated, and takes the place of all that there are")
	}
	return o
}

// newRemove is for "kube-proxy rm", which deletes what etcd holds about a service.
func newRemove() *recordOptions {
	return newRecordOptions("rm", "SERVICE", "deletes the records that etcd holds of a service",
		func(ctx context.Context, client *clientv3.Client, service registry.Name, out edit.Output) error {
			set, err := edit.Read(ctx, client, service)
			if err != nil {
				return err
			}
			return edit.Remove(ctx, set, out)
		})
}

func newRecordOptions(word, args, summary string, do func(context.Context, *clientv3.Client, registry.Name, edit.Output) error) *recordOptions {
	return &recordOptions{options: *defaults(), timeout: 10 * time.Second, output: outputText, word: word, args: args, summary: summary, do: do}
}

func (o *recordOptions) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy "+o.word, o.args, o.summary, o.examine)
	c.Mix()
	o.addFlags(c)
	shown := flagsForRecords
	c.Group(commandline.General, func(f *pflag.FlagSet) {
		f.Var(commandline.Positive(&o.timeout), "timeout", "how long to wait for etcd, in all")
		f.VarP(commandline.Choice(&o.output, outputText, outputJSON), "o", "o", "`format` of the output: text or json")
		if o.addOwn != nil {
			own := pflag.NewFlagSet(o.word, pflag.ContinueOnError)
			o.addOwn(own)
			own.VisitAll(func(one *pflag.Flag) { shown = append(shown[:len(shown):len(shown)], one.Name) })
			f.AddFlagSet(own)
		}
	})
	c.Show(shown)
	return c
}

// execute is the program when its first argument is the word: without that word.
func (o *recordOptions) execute(args []string, stdout, stderr io.Writer) int {
	if status, done := begin(o.commandLine(), args, stdout, stderr); done {
		return status
	}
	if err := o.run(stdout); err != nil {
		fmt.Fprintf(inert.Writer(stderr), "kube-proxy %s: %v\n", o.word, err)
		return exitFailed
	}
	return exitDone
}

// examine looks at the arguments, and whether the flags go together.
func (o *recordOptions) examine(flags *pflag.FlagSet) error {
	if err := o.readConfig(flags); err != nil {
		return err
	}
	switch {
	case flags.NArg() == 0 && o.args == anyService:
		return o.source.etcd.contradictionOfWriter()
	case flags.NArg() == 0:
		return errors.New("no service: give NAME or NAMESPACE/NAME")
	case flags.NArg() > 1:
		return fmt.Errorf("unexpected argument: %s (one service at a time)", commandline.OneLine(flags.Arg(1)))
	}
	if err := o.service.Set(flags.Arg(0)); err != nil {
		return fmt.Errorf("invalid service %s: %w", commandline.OneLine(flags.Arg(0)), err)
	}
	return o.source.etcd.contradictionOfWriter()
}

func (o *recordOptions) run(stdout io.Writer) error {
	return o.source.etcd.withClient(o.timeout, func(ctx context.Context, client *clientv3.Client) error {
		return o.do(ctx, client, registry.Name(o.service), edit.Output{To: stdout, JSON: o.output == outputJSON})
	})
}

// withClient does something with etcd within a time.
func (e *etcdOptions) withClient(timeout time.Duration, do func(context.Context, *clientv3.Client) error) error {
	cfg, err := e.config(0)
	if err != nil {
		return err
	}
	dialer, err := etcdsource.NewDialer(cfg)
	if err != nil {
		return err
	}
	defer dialer.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, fmt.Errorf("no answer for %v", timeout))
	defer cancel()
	client, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	err = do(ctx, client)
	if failed, ok := errors.AsType[edit.CallError](err); ok {
		return dialer.Explain(ctx, failed.Err)
	}
	return err
}
