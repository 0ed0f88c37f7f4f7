package rotation

import (
	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A reach is how far clients are sent for an endpoint that is ready.
type reach uint32

const (
	nearest reach = iota // to those that they are given first
	farther              // to others, which are farther from the node
	backups              // to those that stand by
)

// A spill is what a log line about the reach of a rotation is about.
type spill struct {
	rotation registry.PortKey
	protocol registry.Protocol
	to       reach
}

// noteSpill says so when clients are sent farther, or to endpoints that stand by, and when they are not any more.
func (r *Rotation) noteSpill(set *endpointSet, protocol registry.Protocol) {
	if set.nearness == nil {
		return
	}
	to := set.seenBy(0).reach(protocol)
	from := reach(set.zones.reach[protocol].Swap(uint32(to)))
	if from == to {
		return
	}
	note, ok := r.rules.spills.Allow(spill{r.Key, protocol, to})
	switch {
	case !ok:
	case to == backups:
		glog.Warningf("%s: no endpoint but backups answers over %s, so clients are given those%s", r.Key, protocol, note)
	case to == farther:
		glog.Warningf("%s: no endpoint near this node answers over %s, so clients are given others%s", r.Key, protocol, note)
	case from == backups:
		glog.Infof("%s: clients are given endpoints that are no backups again over %s%s", r.Key, protocol, note)
	default:
		glog.Infof("%s: clients are given endpoints near this node again over %s%s", r.Key, protocol, note)
	}
}
