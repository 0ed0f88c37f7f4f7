package health

import (
	"cmp"
	"time"

	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
)

// Export returns what a successor needs. What checks say is the checker's.
func (h *Health) Export(now time.Duration) (r handover.Health) {
	if until := h.ejectedUntil.Load(); until != 0 {
		r = handover.Health{Failing: true, Returns: time.Duration(until) - now, ConsecutiveFailures: h.consecutiveFailures.Load(), HalfOpen: h.halfOpen.Load()}
		r.FailingFor = max(now-h.FailingSince(), 0)
	}
	if aside := h.aside.Load(); aside != 0 {
		r.Aside = max(time.Duration(aside)-now, 0)
	}
	if why, ok := h.Unusable(); ok {
		r.Unusable = why.String()
	}
	if until := time.Duration(h.warmUntil.Load()); until != 0 && until > now {
		r.Warms, r.Warmed = until-now, max(now-time.Duration(h.warmFrom.Load()), 0)
	}
	return r
}

// Adopt makes h what a predecessor's message says.
func (h *Health) Adopt(r handover.Health, now time.Duration) {
	if r.Failing {
		h.failingSince.Store(int64(now - r.FailingFor))                             // of an earlier release, which does not say it, from now on
		h.ejectedUntil.Store(cmp.Or(int64(now+min(r.Returns, LongestEjection)), 1)) // 0 would say that it is well
		h.consecutiveFailures.Store(r.ConsecutiveFailures)
		h.halfOpen.Store(r.HalfOpen)
	}
	if r.Aside > 0 {
		h.aside.Store(int64(now + min(r.Aside, AsideFor)))
	}
	if why, ok := traffic.ParseReason(r.Unusable); ok {
		h.unusable.Store(uint32(why))
	}
	if r.Warms > 0 {
		h.warmFrom.Store(int64(now - r.Warmed))
		h.warmUntil.Store(int64(now + r.Warms))
	}
}
