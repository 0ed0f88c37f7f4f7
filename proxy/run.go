package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/golang/glog"
)

// Run tries again to open the ports that could not be opened, until ctx ends. Then it lets no new client in,
// lets what is being relayed, and UDP sessions that are not silent, finish for DrainTimeout, cuts the rest and returns nil. After
// that nothing of the proxier is running, and further batches are ignored.
func (p *Proxier) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	keepCtx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx)) // until all ports are closed
	defer stopKeeping()
	var beside sync.WaitGroup
	defer beside.Wait()
	if p.cfg.Keeper != nil {
		beside.Go(func() { p.keep(keepCtx) })
	}
	beside.Go(func() { p.lb.RunOverrides(ctx) })
	if p.lb.Checker != nil {
		beside.Go(func() { p.lb.Checker.Run(ctx) })
	}
	if p.kernel != nil {
		beside.Go(func() { p.kernel.Run(ctx) })
		defer p.kernel.Close()
	}
	for {
		select {
		case <-ctx.Done():
			p.stop()
			stopKeeping()
			// The drain has its own time: the one who told us to stop is not to cut it short.
			drain, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.cfg.DrainTimeout, errDrainTimeout)
			defer cancel()
			p.engine.Drain(drain)
			if drain.Err() != nil {
				glog.Warningf("some connections had not finished after %v, and were cut", p.cfg.DrainTimeout)
			} else {
				glog.Info("all connections have finished")
			}
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		next, ok := p.retry()
		if probe, held := p.probeHeld(); held && (!ok || probe.Before(next)) {
			next, ok = probe, true
		}
		if ok {
			timer.Reset(time.Until(next))
		}
	}
}

var errDrainTimeout = errors.New("drain timeout")

// stop has every listener let no new client in, for good.
func (p *Proxier) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitForTakeoverLocked()
	if p.stage == adopts {
		p.engine.Release() // the predecessor has them still
		p.endAdoptionLocked()
	}
	p.draining = true
	p.closeAllLocked()
	if p.stage == adopts {
		p.engine.Resume()
	}
}
