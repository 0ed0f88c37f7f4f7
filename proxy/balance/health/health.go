package health

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An endpoint that refuses or stays silent is ejected for FirstEjection, then twice as long each
// time it fails again on its return, up to LongestEjection.
const (
	FirstEjection   = time.Second
	LongestEjection = 30 * time.Second
)

// A Health is what is known of an endpoint over one protocol. The zero value is well. Its times are
// monotonic: when the time of day is set, no endpoint is ejected for longer, or comes back earlier.
//
// Any goroutine may call its methods, but those about checks, which one at a time may call.
type Health struct {
	ejectedUntil        atomic.Int64 // by the clock of Now; 0 when the last attempt succeeded
	aside               atomic.Int64 // the same clock: until when it is not offered because it cannot be used, through no fault of its own; 0 for not
	failingSince        atomic.Int64 // the same clock: the first failure since the last success; it counts while ejectedUntil is not 0
	consecutiveFailures atomic.Int64 // failed returns since the last success
	halfOpen            atomic.Bool  // its time to return has come, and one client is finding out whether it does

	unusable   atomic.Uint32 // the [traffic.Reason] for which the last client could not use it, through no fault of its own; 0 for none
	failsCheck atomic.Bool   // its active checks fail
	warmFrom   atomic.Int64  // the same clock: when they passed again,
	warmUntil  atomic.Int64  // and when it has its whole share of clients again; 0 when it has
}

// EjectedUntil returns until when clients are given other endpoints because of failed attempts, by the clock of Now: 0 when the last
// attempt succeeded, and when there was none.
func (h *Health) EjectedUntil() time.Duration { return time.Duration(h.ejectedUntil.Load()) }

// FailingSince returns when the first of those attempts failed, by the clock of Now. It counts while EjectedUntil is not 0.
func (h *Health) FailingSince() time.Duration { return time.Duration(h.failingSince.Load()) }

// FailsCheck reports whether active checks of the endpoint fail.
func (h *Health) FailsCheck() bool { return h.failsCheck.Load() }

// AsideFor is how long an endpoint is not offered whose name was not resolved, or whose address our own rules refuse.
// The addresses of this machine are taken as known for as long, and answers to names (localFor, freshFor).
const AsideFor = 5 * time.Second

// SetAside ejects the endpoint for AsideFor, through no fault of its own. Why stays known until a client or a check can use it.
func (h *Health) SetAside(why traffic.Reason) {
	h.unusable.Store(uint32(why))
	h.aside.Store(int64(monotonic.Now() + AsideFor))
}

// Unusable returns why the last client could not use the endpoint, and false if it could, or none has come.
func (h *Health) Unusable() (why traffic.Reason, ok bool) {
	why = traffic.Reason(h.unusable.Load())
	return why, why != 0 // which is that of no client who got no endpoint
}

// Usable notes that the name of the endpoint stands for an address, and that our rules allow it.
func (h *Health) Usable() {
	if h.unusable.Load() != 0 { // most often it is: then nothing is written
		h.unusable.Store(0)
	}
}

// Never is when an endpoint returns whose checks fail: the next check that passes says when.
const Never time.Duration = math.MaxInt64 / 2

// Returns returns until when clients are given other endpoints, by the clock of Now; 0 when they are not.
func (h *Health) Returns() time.Duration {
	if h.failsCheck.Load() {
		return Never
	}
	down, aside := h.ejectedUntil.Load(), h.aside.Load()
	if down == 0 || aside == 0 {
		return time.Duration(down + aside)
	}
	return time.Duration(max(down, aside))
}

// IsSettled reports whether the endpoint gets its whole share of clients: it is neither ejected nor warming up, and no client is finding
// out whether it has returned.
func (h *Health) IsSettled() bool {
	now := int64(monotonic.Now())
	return !h.failsCheck.Load() && h.ejectedUntil.Load() <= now && h.aside.Load() <= now && h.warmUntil.Load() <= now
}

// Skips reports whether a client that could have the endpoint is to be given another one: while it is ejected
// and, over TCP, while another client finds out whether it has returned. The first client that gets false after the endpoint was
// due back is that one: if it is silent still, it costs no other client a quarter of a second. (A UDP client that
// hears nothing finds out nothing.) While it warms up, a part of those clients skips it that have not had it before.
func (h *Health) Skips(protocol registry.Protocol, hadIt bool) bool {
	until, aside := h.ejectedUntil.Load(), h.aside.Load()
	if until == 0 && aside == 0 && !h.failsCheck.Load() && h.warmUntil.Load() == 0 {
		return false
	}
	now := monotonic.Now()
	if aside != 0 && int64(now) >= aside {
		h.aside.CompareAndSwap(aside, 0)
		aside = 0
	}
	switch {
	case aside != 0, h.failsCheck.Load(), !hadIt && h.isCold(now):
		return true
	case until == 0:
		return false
	case int64(now) < until:
		return true
	case protocol == registry.UDP:
		return false
	case !h.ejectedUntil.CompareAndSwap(until, int64(now+HalfOpenTime)):
		return h.ejectedUntil.Load() != 0 // another client was first, or it has answered
	}
	h.halfOpen.Store(true)
	return false
}

// HalfOpenTime is how long an endpoint stays half-open: after that another client may try, since the first has found out nothing.
const HalfOpenTime = time.Second

// isCold decides by chance whether a client is given another endpoint while this one warms up: all at the beginning, none at the end.
func (h *Health) isCold(now time.Duration) bool {
	from, until := h.warmFrom.Load(), h.warmUntil.Load()
	if until == 0 {
		return false
	}
	if int64(now) >= until {
		h.warmUntil.CompareAndSwap(until, 0)
		return false
	}
	return rand.Int64N(max(1, until-from)) >= int64(now)-from
}

// Failed notes that the endpoint refused or stayed silent. Of many clients that fail together only the first counts, and only a
// failure after the endpoint was due back makes the next wait longer. changed: it is ejected anew; first: it was well before.
func (h *Health) Failed() (changed, first bool) {
	h.Usable() // it was tried
	until, now := h.ejectedUntil.Load(), monotonic.Now()
	if wasHalfOpen := h.halfOpen.CompareAndSwap(true, false); until != 0 && until > int64(now) && !wasHalfOpen {
		return false, false
	}
	failures := h.consecutiveFailures.Load()
	if failures == 0 {
		h.failingSince.Store(int64(now)) // before ejectedUntil, since it counts from then on
	}
	wait := min(FirstEjection<<min(failures, 5), LongestEjection)
	if !h.ejectedUntil.CompareAndSwap(until, int64(now+wait)) {
		return false, false
	}
	return true, h.consecutiveFailures.Add(1) == 1
}

// Answered notes that the endpoint is well, and reports whether that is news.
func (h *Health) Answered() bool {
	if h.ejectedUntil.Load() == 0 || h.ejectedUntil.Swap(0) == 0 {
		return false
	}
	h.recovered()
	return true
}

// Returned notes that a check found the endpoint well. If its time to return has come, that ends the ejection as the answer to a
// client does, and Returned reports true. Before that time, clients who failed there know better than the check.
func (h *Health) Returned() bool {
	h.Usable()
	until := h.ejectedUntil.Load()
	if until == 0 || until > int64(monotonic.Now()) || !h.ejectedUntil.CompareAndSwap(until, 0) {
		return false
	}
	h.recovered()
	return true
}

// A Trial is what a client knows of an endpoint that it sends to and that never answers. The zero value is ready.
type Trial struct{ ejection, since int64 }

// Outlasted notes that the client has sent something, and was not refused. It ends the ejection, and reports true, if the client finds the same one as
// longer ago than enough: nobody was refused meanwhile for whom it was made longer.
func (h *Health) Outlasted(t *Trial, enough time.Duration) bool {
	until := h.ejectedUntil.Load()
	if until == 0 {
		return false
	}
	now := int64(monotonic.Now())
	if until != t.ejection {
		t.ejection, t.since = until, now
	}
	if now-t.since <= int64(enough) || !h.ejectedUntil.CompareAndSwap(until, 0) {
		return false
	}
	h.recovered()
	return true
}

// Forget makes h well, but for what checks say: no client is to come over its protocol, so none would correct it.
func (h *Health) Forget() {
	h.Usable()
	h.Answered()
	h.aside.Store(0)
	h.warmUntil.Store(0)
}

func (h *Health) recovered() {
	h.consecutiveFailures.Store(0)
	h.halfOpen.Store(false)
}

// Checked notes what active checks say of the endpoint. One that passes them again gets its share of clients over slowStart, and is
// given to clients at once that had failed there before.
func (h *Health) Checked(passes bool, slowStart time.Duration) {
	if passes && h.failsCheck.Load() {
		if now := monotonic.Now(); slowStart > 0 {
			h.warmFrom.Store(int64(now))
			h.warmUntil.Store(int64(now + slowStart))
		}
		h.Answered()
	}
	h.failsCheck.Store(!passes)
}
