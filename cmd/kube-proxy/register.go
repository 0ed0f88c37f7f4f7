package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/register"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource"
	"kubeproxy/registry"
)

// registerOptions is what "kube-proxy register" was asked for.
type registerOptions struct {
	options   // of these etcd, the version and the log
	service   serviceValue
	ports     instancePorts
	address   commandline.Address
	host      string
	weight    weightValue
	check     string
	interval  time.Duration
	ttl       time.Duration
	drain     time.Duration
	supersede bool
	command   []string
}

// The shortest lease leaves time for three attempts within it.
const leastTTL = 5 * time.Second

func newRegister() *registerOptions {
	host, _ := os.Hostname() // empty: then address and ports identify the instance
	return &registerOptions{
		options:  *defaults(),
		host:     host,
		weight:   1,
		interval: 2 * time.Second,
		ttl:      15 * time.Second,
		drain:    5 * time.Second,
	}
}

func (o *registerOptions) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy register", "[-- COMMAND ...]", "keeps an instance of a service registered in etcd, as long as its check passes", o.examine)
	c.Group(topicInstance, func(f *pflag.FlagSet) {
		f.Var(&o.service, "service", "`name` of the service, or NAMESPACE/NAME")
		f.Var(&o.ports, "port", "a port of the instance: `[NAME=]NUMBER[/udp]`, with the name of the service's port if it has one; repeat to add more")
		f.Var(&o.address, "address", "`address` that proxies connect to")
		f.StringVar(&o.host, "host", o.host, "`name` of this machine; host, address and ports identify the instance")
		f.Var(&o.weight, "weight", "share of clients from 0 to 256, beside the weights of other instances; at 0 it gets no new ones")
		f.StringVar(&o.check, "check", "", "`check` of the instance: tcp, http=[:PORT]/PATH, exec=COMMAND or none; tcp if it has a TCP port")
		f.Var(commandline.AtLeast(100*time.Millisecond, &o.interval), "check_interval", "time between two checks; two in a row must fail")
		f.Var(commandline.AtLeast(leastTTL, &o.ttl), "ttl", "lease of the record: how long it stays when this process dies or loses etcd")
		f.BoolVar(&o.supersede, "supersede_endpoints", false, "register although the service has a record of endpoints, whose endpoints lose all clients by that")
		f.Var(commandline.ZeroOr(0, &o.drain), "drain", "how long the record says terminating after SIGTERM, before COMMAND is sent SIGTERM, too, and the record is deleted")
	})
	c.Derive("host", "the host name", o.host)
	c.Derive("address", "the address from which this machine reaches etcd", "")
	o.source.etcd.addFlags(c)
	o.addLogFlags(c)
	return c
}

// runRegister is the program when its first argument is "register": without that word.
func runRegister(args []string, stdout, stderr io.Writer) int {
	o := newRegister()
	c := o.commandLine()
	if status, done := begin(c, args, stdout, stderr); done {
		return status
	}
	log, err := o.startLog(c.Flags)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	defer log.Flush(lastLines)
	status, err := o.run()
	if err != nil {
		glog.Error(err)
		return exitFailed
	}
	return status
}

// examine looks at the arguments, and whether the flags go together.
func (o *registerOptions) examine(flags *pflag.FlagSet) error {
	o.command = flags.Args()
	switch {
	case len(o.command) > 0 && flags.ArgsLenAtDash() != 0:
		return fmt.Errorf("unexpected argument: %s (a command comes after --)", commandline.OneLine(o.command[0]))
	case o.service.Name == "":
		return errors.New("no service: give -service")
	case len(o.ports) == 0:
		return errors.New("no port: give -port")
	}
	in := o.instance()
	if !in.Address.IsValid() {
		in.Address = netip.IPv6Loopback() // it will be found; what else is wrong does not depend on it
	}
	if err := in.Validate(); err != nil {
		return err
	}
	if _, err := register.ParseCheck(o.check, &in); err != nil {
		return fmt.Errorf("-check: %w", err)
	}
	return o.source.etcd.contradictionOfWriter()
}

// contradictionOfWriter is contradiction for a program that needs an etcd of version 3.
func (e *etcdOptions) contradictionOfWriter() error {
	switch {
	case !e.given():
		return errors.New("no etcd: give -etcd_servers or -etcd_config")
	case e.version == etcd2:
		return errors.New("-etcd_version=2: etcd 2 has no leases and no transactions as they are needed here; give an etcd 3")
	}
	return e.contradiction()
}

// instance is what is registered. Its address may still have to be found.
func (o *registerOptions) instance() register.Instance {
	return register.Instance{Service: registry.Name(o.service), Host: o.host, Address: netip.Addr(o.address), Ports: o.ports, Weight: int(o.weight)}
}

// run registers the instance until a signal comes, or its command ends. The status is that of the command.
func (o *registerOptions) run() (status int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	reloads := make(chan os.Signal, 8)
	if len(o.command) > 0 { // without a command, SIGHUP ends the process as ever
		signal.Notify(reloads, syscall.SIGHUP)
		defer signal.Stop(reloads)
	}
	cfg, err := o.config()
	if err != nil {
		return exitFailed, err
	}
	var command *child
	if len(o.command) > 0 {
		if command, err = startChild(o.command); err != nil {
			return exitFailed, err
		}
		cfg.Gone, cfg.Drained = command.gone, func() { command.signal(syscall.SIGTERM) }
	}
	r, err := register.New(cfg)
	if err != nil {
		return exitFailed, err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	registered := make(chan struct{})
	go func() {
		defer close(registered)
		r.Run(ctx)
	}()
	for {
		select {
		case sig := <-reloads: // the command reads its configuration again, or whatever it means there
			command.signal(sig)
		case sig := <-signals:
			switch stopping := ctx.Err() != nil; {
			case command == nil:
				signal.Stop(signals) // a second one finds the default handling again, and ends us at once
			case stopping:
				command.signal(sig)
			}
			stop()
		case <-registered:
			if command == nil {
				return exitDone, nil
			}
			return command.status(), nil
		}
	}
}

// config makes of the flags what the registrar needs to know.
func (o *registerOptions) config() (register.Config, error) {
	etcd, err := o.source.etcd.config(0)
	if err != nil {
		return register.Config{}, err
	}
	cfg := register.Config{
		Etcd:      etcd,
		Instance:  o.instance(),
		Interval:  o.interval,
		TTL:       o.ttl,
		Drain:     o.drain,
		Supersede: o.supersede,
	}
	if !cfg.Instance.Address.IsValid() {
		if cfg.Instance.Address, err = localAddress(etcd); err != nil {
			return cfg, fmt.Errorf("no -address is given, and none is found: %w", err)
		}
		if cfg.Instance.Address.IsLoopback() {
			glog.Warningf("the instance is registered at %v, which only this machine reaches: give -address", cfg.Instance.Address)
		}
	}
	cfg.Check, err = register.ParseCheck(o.check, &cfg.Instance)
	return cfg, err
}

// localAddress is the address from which this machine reaches etcd.
func localAddress(etcd etcdsource.Config) (netip.Addr, error) {
	d, err := etcdsource.NewDialer(etcd)
	if err != nil {
		return netip.Addr{}, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), etcdconfig.DefaultRequestTimeout)
	defer cancel()
	return d.LocalAddr(ctx)
}

// A child is the command that an instance consists of.
type child struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

func startChild(command []string) (*child, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...), gone: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.gone)
		_ = c.cmd.Wait() // status has it
	}()
	return c, nil
}

func (c *child) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) } // it may just have ended

// status is the exit status as a shell gives it, once the child is gone.
func (c *child) status() int {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// A serviceValue is a flag that names a service.
type serviceValue registry.Name

func (v *serviceValue) Set(s string) error {
	name, err := registry.ParseName(s)
	if err == nil {
		*v = serviceValue(name)
	}
	return err
}

func (v *serviceValue) String() string {
	if v.Name == "" {
		return ""
	}
	return registry.Name(*v).String()
}

func (v *serviceValue) Type() string { return "service" }

// A weightValue is a flag that gives an endpoint a weight.
type weightValue int

func (v *weightValue) Set(s string) error {
	weight, err := registry.ParseWeight(s)
	if err == nil {
		*v = weightValue(weight)
	}
	return err
}

func (v *weightValue) String() string { return strconv.Itoa(int(*v)) }
func (v *weightValue) Type() string   { return "weight" }

// instancePorts is a flag that may be repeated: the ports of an instance.
type instancePorts []register.Port

func (v *instancePorts) Set(s string) error {
	p, err := register.ParsePort(s)
	if err == nil {
		*v = append(*v, p)
	}
	return err
}

func (v *instancePorts) String() string {
	var all []string
	for _, p := range *v {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

func (v *instancePorts) Type() string { return "port" }
