package config

import (
	"context"
	"slices"
	"time"

	"kubeproxy/registry"
)

// A Source keeps the program informed of one place where services and endpoints are written. Sources live in packages of
// their own below this one.
type Source interface {
	// Name names the source in logs and to operators: one short word. It never changes.
	Name() string

	// Run keeps out informed until ctx ends, and then returns nil. The first update is a SET with everything; see
	// [Mux.Channel] for what may follow. A source never gives up: while it cannot read, it sends nothing, and what it
	// said stays in force. An error ends the program. Run is called once at a time.
	Run(ctx context.Context, out chan<- registry.Update) error

	// Resync asks for everything to be read again soon. It does not wait for it.
	Resync()

	// Status tells how the source is doing. Any goroutine may call it. The lists in it must not be edited.
	Status() Status
}

// A Status says how a [Source] is doing. It is a copy: reading it needs no lock.
type Status struct {
	Ready     bool      // a first SET was sent: what is served is, or was, what the source reads
	Revision  int64     // of the last Update sent; 0 before the first
	Cluster   string    // identifies the store that it came from, where stores have an identity
	Connected bool      // the source can read now
	Since     time.Time // for how long Connected has been what it is
	Cause     string    // why not, when not Connected: a short word, the same that Ends counts
	Reason    string    // the same in one line
	Attempts  int       // how often a connection was tried since then, in vain
	Heard     time.Time // when the store last said anything
	Current   time.Time // everything that was written by then has been sent; zero before the first SET
	Listed    time.Time // when everything was last read

	Services   int // objects in force
	Endpoints  int
	Kept       int         // services whose endpoints are in force though their leases have ended, for lack of others
	Rejected   int         // keys whose newest value cannot be used, or that cannot be keys of records
	Rejections []Rejection // these keys, at most [MaxRejections] of them; sorted by key within one list of the source
	Warned     int         // keys whose newest value is in force, and odd
	Warnings   []Warning   // these keys, at most [MaxRejections] of them, in the same order
	Elections  []Election  // the keys that elect endpoints, once they are known, by key: first all whose primaries are to be asked while etcd is away, then others, up to [MaxRejections] of both
	Loss       Loss        // the last time that most services went at once, while some are missing

	Sessions    uint64 // connections that came to stand, each with a full list
	Ends        []End  // those of them that are over, by cause: each that the source can tell of, in an order that never changes
	Resyncs     uint64 // full lists beside a standing connection
	Divergences uint64 // keys that a resync found different though no change had been told
	Setbacks    uint64 // times that the store was found to have lost what it had, or to be another one
}

// An Election is what is known of a key that elects endpoints.
type Election struct {
	Key      string          // one printable line
	Holder   string          // the name that it has; "": none
	Services string          // the services whose endpoints it elects: the first few, and how many more
	Elects   []registry.Name // the same services, by name, at most [MaxElected]
	Changes  []HolderChange  // the last ones, at most [MaxHolderChanges], the oldest first: whom the source found at first is one
	Count    uint64          // how often the holder has changed since the source first read the key; the first reading is no change

	// Of a cluster of Patroni.
	Paused      bool          // Patroni leaves the cluster alone
	Unconfirmed bool          // etcd is away, and the holder, asked whether it is the primary, says no or nothing: see package witness
	API         string        // the holder's REST API: scheme, host and port; "": not known
	TTL         time.Duration // of the leader's key; 0: not known
	LeftOut     int           // replicas that are not given to who reads; one counts once for each service of replicas
	Out         []string      // these, at most [MaxElected], each a line with service, name and why
	Unusable    int           // keys whose newest value cannot be used
	Rejected    []string      // these, at most [MaxElected], each a line with why
}

// HasHolder reports whether a name holds the key, and can be believed to.
func (e *Election) HasHolder() bool { return e.Holder != "" && !e.Unconfirmed }

// A HolderChange says from when on a key had a name.
type HolderChange struct {
	Holder   string // "": there was no such key
	Revision int64
	At       time.Time // when the source heard of it
}

// MaxHolderChanges is how many changes of its holder an [Election] has.
const MaxHolderChanges = 10

// MaxElected is how many services an [Election] names, and how many replicas and keys.
const MaxElected = 20

// An End counts the sessions that ended for one cause.
type End struct {
	Cause string
	Count uint64
}

// A Rejection is a key whose newest value cannot be used, or that cannot be the key of a record. It
// hurts only its own service, and the log reports it once: so operators can ask for it here.
type Rejection struct {
	Key       string // one printable line, cut where it is too long
	Kind      registry.Kind
	Reason    string
	Revision  int64  // at which the value was written
	Encrypted bool   // the value was encrypted by an API server, which alone can read it
	Unread    bool   // there is no value, for it could not be read: Reason says why
	Value     string // the value, if it is a text of at most [MaxRejectedValue] bytes; "" if it is not, or is not kept
}

// A Warning is a key whose newest value is in force, though something in it is odd.
type Warning struct {
	Key      string // one printable line, cut where it is too long
	Text     string // what is odd, the same
	More     int    // odd things beside this one
	Revision int64  // at which the value was written
}

// MaxRejectedValue is how many bytes a value has at most that a [Rejection] keeps. Together with [MaxRejections] it bounds their memory.
const MaxRejectedValue = 4 << 10

// MaxRejections is how many rejected keys a [Status] lists, and how many odd ones.
const MaxRejections = 100

// Total is the status of several sources taken together, in their order of precedence. A condition holds if it does for all of
// them, a time is the oldest, and what is counted is summed up. Revision, Cluster, Cause and Reason are those of the first one
// that is not connected, or else of the first. Loss is the newest. Of one source it is the status of that.
func Total(sources ...Source) Status {
	if len(sources) == 0 {
		return Status{}
	}
	var all []Status
	for _, s := range sources {
		all = append(all, s.Status())
	}
	total := all[max(slices.IndexFunc(all, func(s Status) bool { return !s.Connected }), 0)]
	if len(all) == 1 {
		return total
	}
	sum := Status{
		Ready: true, Connected: total.Connected, Since: total.Since, Cause: total.Cause, Reason: total.Reason, Attempts: total.Attempts,
		Revision: total.Revision, Cluster: total.Cluster,
		Heard: total.Heard, Current: total.Current, Listed: total.Listed,
	}
	for _, s := range all {
		sum.Ready = sum.Ready && s.Ready
		sum.Heard, sum.Current, sum.Listed = older(sum.Heard, s.Heard), older(sum.Current, s.Current), older(sum.Listed, s.Listed)
		sum.Services += s.Services
		sum.Endpoints += s.Endpoints
		sum.Kept += s.Kept
		sum.Rejected += s.Rejected
		sum.Rejections = append(sum.Rejections, s.Rejections...)
		sum.Warned += s.Warned
		sum.Warnings = append(sum.Warnings, s.Warnings...)
		sum.Elections = append(sum.Elections, s.Elections...)
		if s.Loss.At.After(sum.Loss.At) {
			sum.Loss = s.Loss
		}
		sum.Sessions += s.Sessions
		sum.Resyncs += s.Resyncs
		sum.Divergences += s.Divergences
		sum.Setbacks += s.Setbacks
		for _, end := range s.Ends {
			if i := slices.IndexFunc(sum.Ends, func(e End) bool { return e.Cause == end.Cause }); i >= 0 {
				sum.Ends[i].Count += end.Count
			} else {
				sum.Ends = append(sum.Ends, end)
			}
		}
	}
	sum.Rejections = sum.Rejections[:min(len(sum.Rejections), MaxRejections)]
	sum.Warnings = sum.Warnings[:min(len(sum.Warnings), MaxRejections)]
	sum.Elections = sum.Elections[:min(len(sum.Elections), MaxRejections)]
	return sum
}

// older is the earlier of two times, of which zero is never.
func older(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Lost counts the services of which operators are to be told that sources have lost them: those of sources that hold none any more, and those of
// sources that still hold some.
func Lost(now time.Time, sources ...Source) (all, some int) {
	for _, s := range sources {
		switch st := s.Status(); st.Services {
		case 0:
			all += st.Loss.Missing(0, now)
		default:
			some += st.Loss.Missing(st.Services, now)
		}
	}
	return all, some
}
