package etcdsource

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/remote"
	"kubeproxy/internal/backoff"
)

// A probe finds out whether a watch that says nothing is idle or dead. Its fields belong to the goroutine in Run.
type probe struct {
	stage     stage
	timer     *time.Timer
	target    int64          // a revision that etcd has reached, and the watch must come to
	requests  int            // for progress, sent while none was answered
	answers   bool           // this etcd answers progress requests
	silence   time.Duration  // how long silence may last; 0 for the configured period
	unreached backoff.Pauses // between questions that were not answered at all
}

// A stage is what a probe waits for. Whatever the watch says brings it back to the first.
//
//	calm ──silent──▶ asked ──silent──▶ reading ──etcd is further──▶ doubted ──silent──▶ proving
//	  ▲                                   │                            │                   │
//	  └──────────── it is not ────────────┘                     dead, or not sure?     dead, or not
type stage int

const (
	calm    stage = iota
	asked         // for progress. Idle or not, most etcds answer
	reading       // which revision etcd has reached
	doubted       // etcd has reached a later one than the watch: asked for progress again
	proving       // whether the watch has missed anything
)

// maxUnheeded is how many progress requests a watch is sent that never answers one. A grpc-proxy never does, and logs an error for each.
const maxUnheeded = 3

// stir notes that the watch has said something. The timer goes on while the stage is calm or asked, so that a busy watch
// is asked for progress each period, too.
func (x *session) stir() {
	restart := x.silence > 0 || x.stage > asked
	x.stage, x.silence = calm, 0
	x.unreached.Reset()
	if restart {
		x.wait()
	}
}

// wait gives the watch time to speak.
func (x *session) wait() { x.timer.Reset(max(x.silence, x.cfg.ProbePeriod)) }

// request asks the watch for progress, unless that has proved to be no use.
func (x *session) request() {
	if x.asked.IsZero() {
		x.asked = time.Now()
	}
	if !x.answers {
		if x.requests == maxUnheeded {
			return
		}
		x.requests++
	}
	x.watch.askProgress()
}

// period ends a period of the probe. In the stage calm the watch has spoken in it, or it is the first. In the others the
// watch has been silent. Silence proves nothing by itself: an etcd that is idle is silent too, and a progress
// request that came too early is dropped. Only an etcd that has gone on without its watch convicts it.
func (x *session) period() error {
	x.follow()
	if err := x.overdue(); err != nil {
		return err
	}
	if late, yes := x.behind(); yes {
		return remote.Because(Stale, fmt.Errorf("the watch is %v behind, and its changes fill %d MiB of memory: reading everything is faster", late.Round(time.Second), events.MaxWaiting>>20))
	}
	if x.stage != calm && !x.watch.inbox.empty() {
		x.wait() // it has spoken, and it was we who did not listen
		return nil
	}
	switch x.stage {
	case calm:
		x.stage = asked
		switch {
		case x.asked.IsZero():
			x.request()
		case !x.probes.busy: // it has spoken, and not answered
			x.read()
		}
		x.wait()
	case asked:
		if x.probes.busy { // with a question that the watch has answered meanwhile
			x.wait()
			return nil
		}
		x.stage = reading
		x.read()
	case doubted:
		if x.answers {
			return x.dead()
		}
		x.stage = proving
		x.probes.ask(x.ctx, x.cfg.RequestTimeout, changes(x.heard, x.target))
	}
	return nil
}

// read asks etcd, beside the watch, which revision it has reached.
func (x *session) read() {
	x.readAt, x.least, x.mark = time.Now(), x.heard, 0
	x.probes.ask(x.ctx, x.cfg.readTimeout(), newest)
}

// readTimeout is short, because while the question hangs it is unknown whether etcd lives.
func (c *dialer) readTimeout() time.Duration { return min(2*c.ProbePeriod, c.RequestTimeout) }

// probed handles an answer.
func (x *session) probed(a answer) error {
	if x.answers {
		x.probes.close() // such an etcd is seldom asked, and by then the connection may be as deaf as the watch
	}
	another := x.watched != 0 && a.cluster != x.watched
	if a.err == nil && x.stage != proving && !another && a.revision >= x.least { // else it says nothing of the watched etcd, or that it went back
		x.found(a.revision)
	}
	switch {
	case x.stage != reading && x.stage != proving:
		return nil // the watch has spoken meanwhile
	case errors.Is(a.err, rpctypes.ErrCompacted):
		x.stage = asked // too late for that revision: take a newer one
		x.wait()
		return nil
	case a.err != nil:
		// That says nothing against the watch, which may be sound. It is kept, and etcd asked again.
		x.trouble(fmt.Errorf("watch silent, read failed: %w", a.err))
		x.stage = asked
		x.timer.Reset(x.unreached.Next())
		return nil
	case another:
		return remote.Because(WentBack, fmt.Errorf("watch and read are of two clusters, %x and %x", x.watched, a.cluster))
	}
	x.unreached.Reset()
	x.well()
	return x.compared(a)
}

// compared handles an answer of the watched etcd while the watch is silent.
func (x *session) compared(a answer) error {
	switch {
	case x.stage == reading && a.revision < x.heard:
		return wentBack(x.heard, a.revision)
	case x.stage == reading && a.revision == x.heard:
		x.stage = calm // nothing has happened that the watch could have told
		x.wait()
	case x.stage == reading:
		x.stage, x.target = doubted, a.revision
		x.request()
		x.wait()
	case a.changed > 0 || a.count != int64(x.records.Len()):
		return x.dead()
	default:
		// Only other keys than ours were written, and this etcd leaves progress requests unanswered (a
		// grpc-proxy does). The proof is not cheap: from now on silence may last longer, up to the
		// period in which a resync would find out.
		x.stage, x.heard = calm, max(x.heard, x.target)
		x.reached()
		x.silence = min(2*max(x.silence, x.cfg.ProbePeriod), x.cfg.SyncPeriod)
		x.wait()
	}
	return nil
}

func (x *session) dead() error {
	return remote.Because(Stale, fmt.Errorf("watch dead: it stopped at revision %d, and etcd has reached %d", x.heard, x.target))
}
