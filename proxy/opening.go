package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// Opening ports, and trying again. Package ports says which of them may be tried. Whatever keeps ports closed, there may be thousands of them: another
// proxy on this machine has them all, or there are descriptors for no more. So the log has a bounded
// number of lines for it, and the status of each port has the rest.

// How long to wait before a port that could not be opened is tried again. The first wait is short,
// since most often a program is just being replaced by another.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// openLocked opens the sockets of some listeners in this order, those with an inherited socket first, and sees to it that Run tries again
// those that cannot be opened.
func (p *Proxier) openLocked(due []*listener) {
	if len(due) == 0 {
		return
	}
	due = inheritedFirst(due, p.inheritedLocked())
	p.gate.Refresh()
	own := sync.OnceValue(p.gate.System.OwnLocal) // only asked for if a port is in use
	var lacking error                             // what the first for whom there was no descriptor was told: there is none for the next ones either
	var without []*listener                       // those who heard it only now
	failed := func(l *listener, err error) {
		news := l.err == nil || l.err.Error() != err.Error() // else it is the same again
		l.backoff = min(max(2*l.backoff, firstRetry), lastRetry)
		l.retryAt = time.Now().Add(l.backoff)
		_, share := errors.AsType[*ports.ShareError](err)
		l.lacksRoom = share || lacksDescriptors(err)
		p.view.Lock()
		l.err = err
		p.view.Unlock()
		p.unopened[l.id] = l
		switch {
		case news && lacking != nil && lacksDescriptors(err):
			without = append(without, l)
		case news:
			p.sayUnopened(l)
		}
	}
	var opened []*listener
	for _, l := range due {
		err := cmp.Or(p.gate.MayOpen(l.id), lacking) // the gate is asked first: it learns that a held port is claimed again, and looks at it
		if err == nil {
			if err = p.tryLocked(l, own); err == nil {
				opened = append(opened, l)
				continue
			}
			if lacksDescriptors(err) {
				lacking = err
			}
		}
		failed(l, err)
	}
	for _, l := range opened {
		if err := l.socket.Ready(); err != nil {
			p.withdrawLocked(l)
			failed(l, err)
		}
	}
	if len(without) > 0 {
		p.sayWithout(without, lacking)
	}
	if len(p.unopened) > 0 {
		wake(p.wake)
	}
	p.applyKernelLocked() // once for all: a transaction for each port would take ten times as long as to open it
}

// tryLocked opens the socket of l, which the gate allows. own returns the local ports of our own connections.
func (p *Proxier) tryLocked(l *listener, own func() map[registry.ListenerID]bool) error {
	p.giveBackRoomLocked(l.id)
	p.own.Add(l.id) // before it is open: no endpoint may lead back to us
	s, err := p.engine.Listen(l.id, &l.owner, p.besideLocked(l.id)...)
	if ports.IsInUse(err) {
		if closed, wait := p.closeCollidingLocked(l.id); wait != nil {
			err = wait
		} else if closed {
			s, err = p.engine.Listen(l.id, &l.owner, p.besideLocked(l.id)...)
		}
	}
	if err != nil {
		p.own.Remove(l.id)
		return p.gate.Failed(l.id, err, own)
	}
	p.gate.Opened(l.id)
	before := l.err
	p.view.Lock()
	l.socket, l.err, l.backoff = s, nil, 0
	p.view.Unlock()
	delete(p.unopened, l.id)
	p.tellKernelLocked(l)
	p.tellKeeperLocked(l.id, false)
	if before == nil {
		glog.V(1).Infof("listening for %s on %s", l.claims.first.Key, p.cfg.bound(l.id))
		return nil
	}
	if note, ok := p.reopened.Allow(aboutPort{l.id, l.claims.first.Key, true}); ok {
		glog.Infof("listening for %s on %s at last%s", l.claims.first.Key, p.cfg.bound(l.id), note)
	} else {
		p.heldBack = true
	}
	if p.heldBack && len(p.unopened) == 0 {
		p.heldBack = false
		glog.Infof("all %d ports that services claim are open again", len(p.listeners))
	}
	return nil
}

// withdrawLocked notes that the socket of l, which was opened, is closed: the engine cannot serve its clients.
func (p *Proxier) withdrawLocked(l *listener) {
	p.view.Lock()
	l.socket = nil
	p.view.Unlock()
	p.gate.Closed(l.id)
	p.own.Remove(l.id)
	p.tellKernelLocked(l)
	p.tellKeeperLocked(l.id, true)
}

// besideLocked returns the open sockets of the same port whose addresses a listener has too, or that have its address: an address is one of
// those of the node, if the node's listeners are on all of them.
func (p *Proxier) besideLocked(id registry.ListenerID) (beside []engine.Socket) {
	if !p.cfg.BindAddress.IsUnspecified() || !p.gate.HasOpen(id) {
		return nil
	}
	if id.Addr.IsValid() {
		if l := p.listeners[id.AtNode()]; l != nil && l.socket != nil {
			beside = append(beside, l.socket)
		}
		return beside
	}
	for other, l := range p.listeners {
		if other.AtNode() == id && l.socket != nil {
			beside = append(beside, l.socket)
		}
	}
	return beside
}

// lacksDescriptors reports whether a port cannot be opened for want of a descriptor.
func lacksDescriptors(err error) bool {
	return errors.Is(err, admit.ErrNoDescriptors) || sockopt.IsShortage(err)
}

// sayUnopened logs that a port cannot be opened.
func (p *Proxier) sayUnopened(l *listener) {
	if note, ok := p.refusals.Allow(aboutPort{l.id, l.claims.first.Key, false}); ok {
		glog.Errorf("cannot listen for %s on %s: %v%s; trying again until it can%s", l.claims.first.Key, l.id, l.err, p.hint(l), note)
	} else {
		p.heldBack = true
	}
}

// hint says what may be done about a port that cannot be opened.
func (p *Proxier) hint(l *listener) string {
	switch local := p.gate.Local(); {
	case ports.IsInUse(l.err) && local.Contains(l.id.Number):
		return fmt.Sprintf(" (a connection that was given this local port out of net.ipv4.ip_local_port_range, %d-%d, or a program that listens: "+
			"net.ipv4.ip_local_reserved_ports keeps such a port free)", local.First, local.Last)
	case errors.Is(l.err, ports.ErrNotHere):
		return " (give it to an interface, or take it out of the record)"
	case errors.Is(l.err, syscall.EACCES):
		return " (ports below net.ipv4.ip_unprivileged_port_start take root or CAP_NET_BIND_SERVICE)"
	}
	return ""
}

// maxNamed is how many of many ports a line names.
const maxNamed = 3

// sayWithout logs, now and then, that there are no descriptors for some ports: which limit it is, whose
// ports they are, and what to do.
func (p *Proxier) sayWithout(closed []*listener, why error) {
	note, ok := p.shortages.Allow(struct{}{})
	if !ok {
		p.heldBack = true
		return
	}
	var named []string
	for _, l := range closed[:min(len(closed), maxNamed)] {
		named = append(named, fmt.Sprintf("%s on %s", l.claims.first.Key, l.id))
	}
	more := ""
	if n := len(closed) - len(named); n > 0 {
		p.heldBack = true
		more = fmt.Sprintf(" and %d more, by number", n)
	}
	glog.Errorf("cannot listen for %s%s: %v. Of the %d ports that services claim, %d are not open; a limit of %d has room for all "+
		"(ulimit -n, or LimitNOFILE= of a systemd unit). Trying again until there is room%s",
		strings.Join(named, ", "), more, why, len(p.listeners), len(p.unopened), admit.DescriptorsFor(len(p.listeners)), note)
}

// retriesAtOnce is how many ports are tried again in one go. Updates need not wait for more.
const retriesAtOnce = 256

// retry tries the ports that are due, and tells when the next one is.
func (p *Proxier) retry() (next time.Time, ok bool) {
	p.mu.Lock()
	var due []*listener
	now := time.Now()
	for id, l := range p.unopened {
		if !p.gate.IsHeld(id) && !now.Before(l.retryAt) && !p.stage.isTakenOver() { // of the held ones probeHeld takes care
			due = append(due, l)
		}
	}
	p.mu.Unlock()
	for some := range slices.Chunk(inOrder(due), retriesAtOnce) {
		p.mu.Lock()
		p.openLocked(slices.DeleteFunc(some, func(l *listener) bool { return p.stopped || p.stage.isTakenOver() || p.unopened[l.id] != l })) // settled meanwhile
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.unopened {
		if !p.gate.IsHeld(id) && (!ok || l.retryAt.Before(next)) && !p.stage.isTakenOver() {
			next, ok = l.retryAt, true
		}
	}
	return next, ok
}

// withThoseWithoutLocked adds to the ports that are due those that wait for room, for other ports were closed. None of those that an
// update touched is added: they are due already, or settled.
func (p *Proxier) withThoseWithoutLocked(due []*listener, touched map[registry.ListenerID]struct{}) []*listener {
	for id, l := range p.unopened {
		if _, settled := touched[id]; l.lacksRoom && !settled {
			due = append(due, l)
		}
	}
	return inOrder(due)
}

// wake has the goroutine that receives from a channel of capacity 1 look at what is due.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
