//go:build linux

// Measure measures kube-proxy: beside other programs, beside itself, by the size of the registry, by the number of nodes.
//
//	measure peers [flags]    kube-proxy beside HAProxy, nginx and no proxy: docs/performance.md
//	measure self [flags]     kube-proxy beside itself with other flags, or beside an earlier build
//	measure scale [flags]    a change, a resync and a start, by the number of services: docs/performance.md
//	measure fleet [flags]    what many nodes and one etcd cost each other: docs/scale.md
//	measure kernel [flags]   clients that the kernel carries, beside a rule written by hand: docs/performance.md
//	measure takeover [flags] what clients notice of take-overs, and of HAProxy's reload: docs/performance.md
//	measure patroni [flags]  what clients of PostgreSQL notice when its primary changes, beside HAProxy: docs/patroni.md
//
// Each prints what it has found and, where there are bars, whether they are met; -h lists its flags. The packages peers,
// scale, fleet, kernelpath, takeover and patroni know what is measured; scripts/internal/measure has how: rounds in random order, medians and ratios with
// their intervals, bars, the report.
package main

import (
	"context"
	"fmt"
	"os"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/measure/fleet"
	"kubeproxy/scripts/measure/kernelpath"
	"kubeproxy/scripts/measure/patroni"
	"kubeproxy/scripts/measure/peers"
	"kubeproxy/scripts/measure/scale"
	"kubeproxy/scripts/measure/takeover"
)

func main() {
	measure.Play(peers.Roles, scale.Roles, fleet.Roles, kernelpath.Roles) // a process that a measurement has started
	commands := map[string]func([]string) (measure.Options, func(context.Context, *measure.Site) error, error){
		"peers": peers.Parse, "self": peers.ParseSelf, "scale": scale.Parse, "fleet": fleet.Parse, "takeover": takeover.Parse, "kernel": kernelpath.Parse,
		"patroni": patroni.Parse,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "Usage: measure peers|self|scale|fleet|kernel|takeover|patroni [flags] (-h lists the flags of each)")
		os.Exit(2)
	}
	measure.Main(os.Args[1], os.Args[2:], commands[os.Args[1]])
}
