package rotation

import (
	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A spill is what a log line about the nearness of endpoints is about: clients are given those farther away, or near ones again.
type spill struct {
	rotation registry.PortKey
	protocol registry.Protocol
	over     bool
}

// noteSpill says so when the last near endpoint has failed, and when one is ready again.
func (r *Rotation) noteSpill(set *endpointSet, protocol registry.Protocol) {
	if set.nearness == nil {
		return
	}
	spilling := set.seenBy(0).isSpilling(protocol)
	if set.zones.spilling[protocol].Swap(spilling) == spilling {
		return
	}
	note, ok := r.rules.spills.Allow(spill{r.Key, protocol, !spilling})
	switch {
	case !ok:
	case spilling:
		glog.Warningf("%s: no endpoint near this node answers over %s, so clients are given others%s", r.Key, protocol, note)
	default:
		glog.Infof("%s: clients are given endpoints near this node again over %s%s", r.Key, protocol, note)
	}
}
