package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golang/glog"
)

// Opening ports, and trying again. Whatever keeps ports closed, there may be thousands of them: another
// proxy on this machine has them all, or there are descriptors for no more. So the log has a bounded
// number of lines for it, and the status of each port has the rest.

// How long to wait before a port that could not be opened is tried again. The first wait is short,
// since most often a program is just being replaced by another.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// openLocked opens the sockets of some listeners in this order, and sees to it that Run tries again
// those that cannot be opened.
func (p *Proxier) openLocked(due []*listener) {
	var lacking error       // what the first for whom there was no descriptor was told
	var without []*listener // those who heard it only now
	for _, l := range due {
		err := lacking // there is none for the next ones either
		if err == nil {
			if err = p.tryLocked(l); err == nil {
				continue
			}
			if lacksDescriptors(err) {
				lacking = err
			}
		}
		news := l.err == nil || l.err.Error() != err.Error() // else it is the same again
		l.backoff = min(max(2*l.backoff, firstRetry), lastRetry)
		l.retryAt = time.Now().Add(l.backoff)
		l.err = err
		p.unopened[l.id] = l
		switch {
		case news && lacking != nil:
			without = append(without, l)
		case news:
			p.sayUnopened(l)
		}
	}
	if len(without) > 0 {
		p.sayWithout(without, lacking)
	}
	if len(p.unopened) > 0 {
		p.wakeRetries()
	}
}

// tryLocked opens the socket of l.
func (p *Proxier) tryLocked(l *listener) error {
	p.own.add(l.id) // before it is open: no endpoint may lead back to us
	s, err := p.engine.listen(l.id, &l.owner)
	if err != nil {
		p.own.remove(l.id)
		return err
	}
	before := l.err
	l.socket, l.err, l.backoff = s, nil, 0
	delete(p.unopened, l.id)
	if before == nil {
		glog.V(1).Infof("listening for %s on %s of %s", l.claims[0].key, l.id, p.cfg.BindAddress)
		return nil
	}
	if note, ok := p.reopened.ask(); ok {
		glog.Infof("listening for %s on %s of %s at last%s", l.claims[0].key, l.id, p.cfg.BindAddress, note)
	} else {
		p.hushed = true
	}
	if p.hushed && len(p.unopened) == 0 {
		p.hushed = false
		glog.Infof("all %d ports that services claim are open again", len(p.listeners))
	}
	return nil
}

// lacksDescriptors tells whether a port cannot be opened for want of a descriptor.
func lacksDescriptors(err error) bool { return errors.Is(err, errNoDescriptors) || isShortage(err) }

// sayUnopened logs that a port cannot be opened.
func (p *Proxier) sayUnopened(l *listener) {
	if note, ok := p.refusals.ask(); ok {
		glog.Errorf("cannot listen for %s on %s: %v%s; trying again until it can%s", l.claims[0].key, l.id, l.err, p.hint(l), note)
	} else {
		p.hushed = true
	}
}

// hint says what may be done about a port that cannot be opened.
func (p *Proxier) hint(l *listener) string {
	switch first, last, ok := localPorts(); {
	case errors.Is(l.err, syscall.EADDRINUSE) && ok && first <= l.id.number && l.id.number <= last:
		return fmt.Sprintf(" (another program's listener, or a connection that was given this local port out of net.ipv4.ip_local_port_range, "+
			"%d-%d: net.ipv4.ip_local_reserved_ports keeps such a port free)", first, last)
	case errors.Is(l.err, syscall.EACCES):
		return " (ports below net.ipv4.ip_unprivileged_port_start take root or CAP_NET_BIND_SERVICE)"
	}
	return ""
}

// maxNamed is how many of many ports a line names.
const maxNamed = 3

// sayWithout logs, now and then, that there are no descriptors for some ports: which limit it is, whose
// ports they are, and what to do.
func (p *Proxier) sayWithout(ports []*listener, why error) {
	if _, ok := p.shortages.ask(1); !ok {
		p.hushed = true
		return
	}
	var named []string
	for _, l := range ports[:min(len(ports), maxNamed)] {
		named = append(named, fmt.Sprintf("%s on %s", l.claims[0].key, l.id))
	}
	more := ""
	if n := len(ports) - len(named); n > 0 {
		p.hushed = true
		more = fmt.Sprintf(" and %d more, by number", n)
	}
	glog.Errorf("cannot listen for %s%s: %v. Of the %d ports that services claim, %d are not open; a limit of %d has room for all "+
		"(ulimit -n, or LimitNOFILE= of a systemd unit). Trying again until there is room",
		strings.Join(named, ", "), more, why, len(p.listeners), len(p.unopened), descriptorsFor(len(p.listeners)))
}

// retry tries the ports that are due, and tells when the next one is.
func (p *Proxier) retry() (next time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*listener
	now := time.Now()
	for _, l := range p.unopenedLocked() {
		if !now.Before(l.retryAt) {
			due = append(due, l)
		}
	}
	if len(due) > 0 {
		p.openLocked(due)
	}
	for _, l := range p.unopened {
		if !ok || l.retryAt.Before(next) {
			next, ok = l.retryAt, true
		}
	}
	return next, ok
}

// unopenedLocked lists the ports that could not be opened, in the order in which they are tried.
func (p *Proxier) unopenedLocked() []*listener {
	return slices.SortedFunc(maps.Values(p.unopened), func(a, b *listener) int { return a.id.compare(b.id) })
}

// withThoseWithoutLocked adds to the ports that are due those that wait for descriptors: some have become free.
func (p *Proxier) withThoseWithoutLocked(due []*listener) []*listener {
	for _, l := range p.unopened {
		if lacksDescriptors(l.err) && !slices.Contains(due, l) {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *listener) int { return a.id.compare(b.id) })
	return due
}

// wakeRetries makes Run look at the ports that could not be opened.
func (p *Proxier) wakeRetries() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
