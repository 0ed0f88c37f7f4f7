package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/localhealth"
	"kubeproxy/config"
	"kubeproxy/config/statefile"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// health is what a node knows of how it is. Any goroutine may ask.
type health struct {
	leaving  context.Context // ends when the node is told to stop
	drained  func() bool     // by an operator
	stopping context.Context // ends when it closes its listeners: then, or after a grace in which clients are still served
	started  time.Time
	maxAge   time.Duration // of what is served; 0 for any

	sources  []config.Source
	pending  func() config.Pending
	inHand   func() time.Time // when the oldest change that is being applied was received; zero for none
	synced   <-chan struct{}  // closed once the first state is in force
	ports    func() []proxy.PortStatus
	balancer *balance.LoadBalancerRR   // knows the endpoints of the ports
	counts   func() [2]proxy.PortCount // of them, by protocol
	stalled  func() error              // an event loop that stands still, nil for none
	local    *localhealth.Server       // tells load balancers; it asks whether the node is ready
	stale    func() bool               // what is served is from the state file
	saved    atomic.Pointer[time.Time] // when that was last known to be what the sources held; nil until it is read
}

// stuckAfter is how long a change may wait to be applied. Ten thousand services take a second.
const stuckAfter = time.Minute

var errLeaving = errors.New("leaving: told to stop; new clients are accepted until the end of -stop_grace")

var errDrained = errors.New("drained by an operator: kube-proxy drain-node -undo ends that; new clients are accepted")

var errDraining = errors.New("draining: told to stop, and new clients are not accepted any more")

// live reports whether the node's work is getting done. While it drains there is none. It waits for nothing that it judges.
func (h *health) live() error {
	if h.stopping.Err() != nil {
		return nil
	}
	if err := h.stalled(); err != nil {
		return err
	}
	if oldest := h.oldestChange(); !oldest.IsZero() && time.Since(oldest) > stuckAfter {
		return fmt.Errorf("stuck: a change has been waiting for %v to be applied", time.Since(oldest).Round(time.Second))
	}
	return nil
}

// keepAlive calls alive as often as every says, while live, until ctx ends.
func (h *health) keepAlive(ctx context.Context, every time.Duration, alive func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := h.live(); err == nil {
			alive()
		} else {
			glog.Errorf("the service manager is not told that the node is alive: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// healthy reports whether clients should be sent here.
func (h *health) healthy() error {
	if h.stopping.Err() != nil {
		return errDraining
	}
	if h.leaving.Err() != nil {
		return errLeaving
	}
	if h.drained() {
		return errDrained
	}
	if err := h.live(); err != nil {
		return err
	}
	return h.openable()
}

// openable reports that this process can open no port at all, for lack of permission, of descriptors or of an engine that starts: the node is
// set up wrongly, another one may do better. It is an error only if no port is open: as long as one is, the node
// serves clients. A port that another program has says nothing of the process.
func (h *health) openable() error {
	var sum proxy.PortCount
	for _, c := range h.counts() {
		sum.Open += c.Open
		sum.Unopened += c.Unopened
		sum.Starved += c.Starved
	}
	if sum.Open == 0 && sum.Starved > 0 && sum.Starved == sum.Unopened {
		return fmt.Errorf("no port open: this process lacks the permission, the descriptors or the memory for each of the %d ports that services claim; the log has the reason", sum.Starved)
	}
	return nil
}

// ready reports whether what the sources hold is being served. That a port cannot be opened, because another
// program has it, or that no service may have it, is noted and no more: else one record could take every
// node out of service.
func (h *health) ready() (notes []string, err error) {
	var closed, refused int
	for _, c := range h.counts() {
		closed += c.Unopened
		refused += c.Refused
	}
	if closed > 0 {
		notes = append(notes, fmt.Sprintf("ports that services claim and that cannot be opened: %d", closed))
	}
	if refused > 0 {
		notes = append(notes, fmt.Sprintf("ports that services ask for and that none may have: %d", refused))
	}
	if err := h.healthy(); err != nil {
		return notes, err
	}
	select {
	case <-h.synced:
	default:
		if unread := h.unread(); len(unread) > 0 {
			return notes, fmt.Errorf("not yet: nothing has been read from %s", names(unread))
		}
		return notes, fmt.Errorf("not yet: the first state has been read from %s, and is being applied", names(h.sources))
	}
	saved := h.saved.Load()
	if unread := h.unread(); saved != nil && h.stale() {
		notes = append(notes, fmt.Sprintf("stale: nothing has been read from %s, and what is served was last known to be true %s", names(unread), h.knownTrue(*saved)))
	} else if len(unread) > 0 {
		notes = append(notes, fmt.Sprintf("nothing has been read from %s: what the other sources hold is served", names(unread)))
	}
	if st := config.Total(h.sources...); st.Rejected > 0 && st.Services+st.Endpoints == 0 {
		why := "the log has a reason"
		if len(st.Rejections) > 0 && st.Rejections[0].Encrypted {
			why = "they are " + st.Rejections[0].Reason
		}
		return notes, fmt.Errorf("nothing to serve: %s holds keys, and none of these %d can be used as a record; %s", names(h.sources), st.Rejected, why)
	}
	if age := h.age(); h.maxAge > 0 && age > h.maxAge {
		return notes, fmt.Errorf("too old: what is served was last known to be what %s holds %v ago, and -config_max_age is %v", names(h.sources), age.Round(time.Second), h.maxAge)
	}
	return notes, nil
}

// onlyDrained reports whether an operator's word is what makes a node not ready that works.
func (h *health) onlyDrained() bool {
	_, err := h.ready()
	return err == errDrained && h.live() == nil
}

// inForce returns the revision up to which the first source was merged, and whether all of that is in force. A batch that is just being taken up
// is missed: who relies on the answer asks twice.
func (h *health) inForce() (revision int64, all bool) {
	pending := h.pending()
	if len(pending.Merged) > 0 {
		revision = pending.Merged[0]
	}
	select {
	case <-h.synced:
		return revision, pending.Services+pending.Endpoints == 0 && h.inHand().IsZero()
	default:
		return revision, false
	}
}

// progress says in one line what the node is doing, or what it waits for: systemctl status shows it.
func (h *health) progress() string {
	open, notes := 0, ""
	for _, c := range h.counts() {
		open += c.Open
	}
	told, err := h.ready()
	for _, note := range told {
		notes += "; " + note
	}
	select {
	case <-h.synced:
	default:
		if unread := h.unread(); h.stopping.Err() == nil && len(unread) > 0 {
			return "waiting for " + names(unread) + ": " + cmp.Or(unread[0].Status().Reason, "nothing has been read yet")
		}
	}
	if err != nil {
		return err.Error() + notes
	}
	return fmt.Sprintf("serving: %d ports open%s", open, notes)
}

// report says the progress now and whenever it has changed, until ctx ends, and calls ready once serving is closed. What is said before ready
// is the progress of a node that serves. Both functions may be nil.
func (h *health) report(ctx context.Context, serving <-chan struct{}, say func(string), ready func()) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := ""; ; {
		if now := h.progress(); now != last && say != nil {
			say(now)
			last = now
		}
		if serving == nil && ready != nil {
			ready()
			ready = nil
		}
		select {
		case <-ticker.C:
		case <-serving:
			serving = nil
		case <-ctx.Done():
			return
		}
	}
}

// unread are the sources that nothing has been read from.
func (h *health) unread() (sources []config.Source) {
	for _, s := range h.sources {
		if !s.Status().Ready {
			sources = append(sources, s)
		}
	}
	return sources
}

// names lists sources in a sentence.
func names(sources []config.Source) string {
	var list []string
	for _, s := range sources {
		list = append(list, s.Name())
	}
	return strings.Join(list, " and ")
}

// age returns the time since what is served was last known to be what the sources hold. A source finds that out again and
// again, even when nothing changes, and what it has sent has to be in force. Before its first state it is the time
// since the start.
func (h *health) age() time.Duration {
	known := h.started
	if saved := h.saved.Load(); saved != nil && h.stale() {
		return h.ageOf(*saved)
	}
	select {
	case <-h.synced:
		known = time.Now()
		for _, s := range h.sources {
			if current := s.Status().Current; current.IsZero() {
				known = h.started
			} else if current.Before(known) {
				known = current
			}
		}
	default:
	}
	if oldest := h.oldestChange(); !oldest.IsZero() && oldest.Before(known) {
		known = oldest
	}
	return time.Since(known)
}

// ageOf returns the age of a state that was saved. It is older than this process, whatever the clock was when it was saved, or is now.
func (h *health) ageOf(saved time.Time) time.Duration {
	return max(time.Since(saved), time.Since(h.started))
}

// knownTrue says when a saved state was last known to be what the sources held.
func (h *health) knownTrue(saved time.Time) string {
	if statefile.IsAhead(saved) {
		return saved.UTC().Format(time.RFC3339) + ", which this machine's clock has not reached: its age is not known"
	}
	return fmt.Sprintf("%v ago", h.ageOf(saved).Round(time.Second))
}

// fallBack returns the saved state, for the time until a source can be read.
func (h *health) fallBack(file *statefile.File) (set registry.Update, ok bool) {
	set, saved, ok := file.Load()
	if ok {
		h.saved.Store(&saved)
		glog.Warningf("nothing can be read from %s: serving the state in %s, which was last known to be true %s", names(h.sources), file.Path(), h.knownTrue(saved))
	}
	return set, ok
}

// current returns when what is served was last known to be what the sources hold; zero if it is something else, or only a part.
func (h *health) current() time.Time {
	select {
	case <-h.synced:
	default:
		return time.Time{}
	}
	if h.stale() || len(h.unread()) > 0 {
		return time.Time{}
	}
	return time.Now().Add(-h.age())
}

// oldestChange tells when the oldest change was received that is not in force yet, zero if there is none.
func (h *health) oldestChange() time.Time {
	oldest := h.inHand()
	if pending := h.pending().Oldest; oldest.IsZero() || !pending.IsZero() && pending.Before(oldest) {
		oldest = pending
	}
	return oldest
}
