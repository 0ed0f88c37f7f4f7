// Package elections describes the keys of etcd that elect endpoints, for people.
package elections

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// maxLines is how many replicas, and how many keys, the row of an election lists.
const maxLines = 8

// A Row is one key that elects endpoints, as it is shown.
type Row struct {
	Key, Services string
	Holder        string // "": nobody
	Since         string
	Paused        bool
	Unconfirmed   bool
	Out           []string // replicas that are left out, and why
	MoreOut       int
	Rejected      []string // keys that cannot be used, and why
	MoreRejected  int
	Count         uint64
	Changes       []string // the last ones, the newest first
}

// NewRow describes an election at a moment.
func NewRow(e *config.Election, now time.Time) Row {
	row := Row{Key: e.Key, Services: e.Services, Holder: e.Holder, Since: heldSince(e, now), Paused: e.Paused, Unconfirmed: e.Unconfirmed, Count: e.Count}
	row.Out, row.Rejected = e.Out[:min(len(e.Out), maxLines)], e.Rejected[:min(len(e.Rejected), maxLines)]
	row.MoreOut, row.MoreRejected = e.LeftOut-len(row.Out), e.Unusable-len(row.Rejected)
	for _, c := range slices.Backward(e.Changes) {
		holder := c.Holder
		if holder == "" {
			holder = "nobody"
		}
		row.Changes = append(row.Changes, fmt.Sprintf("%s %s, revision %d", format.Clock(c.At, now), holder, c.Revision))
	}
	return row
}

// heldSince says from when on a key has the holder that it has. All that is known has a last change.
func heldSince(e *config.Election, now time.Time) string {
	if len(e.Changes) == 0 {
		return "an unknown time"
	}
	last := e.Changes[len(e.Changes)-1]
	return fmt.Sprintf("%s (revision %d)", format.Clock(last.At, now), last.Revision)
}

// KeyOf names the key that elects the endpoints of a service, as elections do; "": none does. An election names its first services only.
func KeyOf(service *registry.Service) string {
	if service == nil || service.Terms().HolderKey == "" {
		return ""
	}
	key := config.OneLine(service.Terms().HolderKey)
	if strings.HasSuffix(key, "/") { // of a cluster of Patroni
		key += patroni.LeaderKey
	}
	return key
}

// WhyUnheld says what a key lacks.
func WhyUnheld(e *config.Election, now time.Time) string {
	if e.Unconfirmed {
		return fmt.Sprintf("Etcd is away, and %s, which has key %s, does not confirm that it is the primary", e.Holder, e.Key)
	}
	return fmt.Sprintf("Nobody holds key %s since %s", e.Key, heldSince(e, now))
}
