package etcdsource

import (
	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
)

// setback reports whether the etcd of a session's first list is not the one that was followed before, or
// has lost what it had, and says so in the log: loud reports whether a line was written.
//
// Ids and revision mostly tell. An etcd that was wiped, or restored from a backup, and has written more
// since than was ever known of it, has the same ids and a later revision. Then only its keys can tell:
// in one history, a key that was neither created nor written after the revision that is known must
// be as it is known. Those that are not so are given as lost. (Had an earlier watch kept something to
// itself, that would look the same; which is as good a reason to be loud.)
func (x *session) setback(l listing, lost records.Tally) (is, loud bool) {
	warn := func(format string, args ...any) {
		var note string
		if note, loud = x.setbacks.Allow(l.revision); loud {
			glog.Warningf(format+"%s", append(args, note)...)
		}
	}
	switch {
	case x.cluster == 0: // there was none before
		return false, false
	case x.cluster != l.cluster:
		warn("another etcd cluster: id %x, was %x; taking its revision %d for the truth", l.cluster, x.cluster, l.revision)
	case l.revision < x.applied:
		warn("etcd went back from revision %d to %d (restored or wiped?); taking that for the truth", x.applied, l.revision)
	case lost.N > 0:
		warn("etcd is at revision %d, but not by way of the revision %d that is known (restored or wiped?); taking that for the truth: of what is older, %s",
			l.revision, x.applied, lost.Differ())
	default:
		return false, false
	}
	x.log.Edit(func(st *config.Status) { st.Setbacks++ })
	return true, loud
}
