package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// sourceOptions says where services are read from. Each source has a file of its own for its flags; the rest of this package knows
// only what is here.
type sourceOptions struct {
	sync   time.Duration
	port   string
	at     string
	node   registry.Node
	etcd   etcdOptions
	master masterOptions
	files  fileOptions
}

func (o *sourceOptions) addFlags(c *commandline.Command) {
	c.Group(topicRegistry, func(f *pflag.FlagSet) {
		f.Var(commandline.Positive(&o.sync), "config_sync_period", "interval between full lists, beside the watch")
	})
	c.Group(topicListening, func(f *pflag.FlagSet) {
		f.Var(commandline.Choice(&o.at, atNode, atCluster, atAll), "service_address", "`where` services listen whose record has no annotation kube-proxy/listen: node; cluster, which is at their clusterIPs, externalIPs and load balancer IPs, and with their node ports at the node; or all, which is both")
		f.Var(commandline.Choice(&o.port, offerPort, offerNodePort), "service_port", "which `port` of its services a node offers: port, or nodePort for that of Kubernetes' services of type NodePort and LoadBalancer")
	})
	c.Group(topicTimeouts, func(f *pflag.FlagSet) {
		f.Var((*commandline.PlaceName)(&o.node.Name), "node_name", "`name` of this node in records of Kubernetes; endpoints on it are local; empty: no endpoint is")
		f.Var((*commandline.PlaceName)(&o.node.Zone), "node_zone", "`name` of the zone of this node; clients are given endpoints in it first whose records say so; empty: zones do not count")
	})
	o.etcd.addFlags(c)
	o.master.addFlags(c)
	o.files.addFlags(c)
}

// Values of -service_port.
const (
	offerPort     = "port"
	offerNodePort = "nodePort"
)

// Values of -service_address.
const (
	atNode    = "node"
	atCluster = "cluster"
	atAll     = "all"
)

var addresses = map[string]decode.Addresses{atNode: decode.AtNode, atCluster: decode.AtCluster, atAll: decode.AtBoth}

// decoder says how sources are to understand records.
func (o *sourceOptions) decoder() decode.Decoder {
	return decode.Decoder{NodePorts: o.port == offerNodePort, Addresses: addresses[o.at], Node: o.node}
}

// etcdConfig is what the etcd source is told.
func (o *sourceOptions) etcdConfig() (etcdsource.Config, error) {
	c, err := o.etcd.config(o.sync)
	c.Decoder = o.decoder()
	return c, err
}

// contradiction tells which flags of sources cannot be used together, if any, or that there is no source.
func (o *sourceOptions) contradiction() error {
	switch {
	case o.at != atNode && o.port == offerNodePort:
		return fmt.Errorf("-service_address=%s and -service_port=%s: with the former, services have their node ports at the node without the latter", o.at, o.port)
	case o.master.given():
		return cmp.Or(o.master.contradiction(), o.etcd.ignoredContradiction())
	case !o.etcd.given() && !o.files.given(): // D2: v0.4 ran on without a source and did nothing
		return errors.New("nothing to read services from: give -etcd_servers, -etcd_config, -registry_dir, -master or -kubeconfig (README.md shows how)")
	}
	return o.etcd.contradiction()
}

// A sourceSet is the sources that the flags ask for.
type sourceSet struct {
	sources []config.Source // in their order of precedence

	// localPorts looks up which TCP ports stores on this machine have. No service may claim them.
	localPorts func(context.Context) []uint16
}

// open makes the sources, after [sourceOptions.contradiction] found none. It reads the files that flags name, and connects to nothing.
func (o *sourceOptions) open(flags *pflag.FlagSet) (sourceSet, error) {
	set := sourceSet{localPorts: func(context.Context) []uint16 { return nil }}
	switch {
	case o.master.given(): // as in v0.4: then nothing that is said of etcd counts
		source, err := o.master.source(o.sync, o.decoder())
		if err != nil {
			return set, err
		}
		if ignored := given(flags, onlyForEtcd); len(ignored) > 0 {
			glog.Warningf("%s is ignored: services are read from the API server", strings.Join(ignored, ", "))
		}
		set.sources, set.localPorts = append(set.sources, source), source.LocalPorts
	case o.etcd.given():
		etcd, err := o.etcdConfig()
		if err != nil {
			return set, err
		}
		source, err := o.etcd.source(etcd)
		if err != nil {
			return set, err
		}
		set.sources, set.localPorts = append(set.sources, source), etcd.LocalPorts
	}
	if o.files.given() {
		source, err := o.files.open(o.sync, o.decoder())
		if err != nil {
			return set, err
		}
		set.sources = append(set.sources, source)
	}
	if ignored := given(flags, onlyForMaster); len(ignored) > 0 && !o.master.given() {
		glog.Warningf("%s is ignored: it means nothing without -master or -kubeconfig", strings.Join(ignored, ", "))
	}
	return set, nil
}

// given picks the flags that are on the command line.
func given(flags *pflag.FlagSet, names []string) []string {
	var on []string
	for _, name := range names {
		if flags.Changed(name) {
			on = append(on, "-"+name)
		}
	}
	return on
}
