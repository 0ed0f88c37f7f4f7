package engine

import (
	"fmt"
	"net/netip"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Lines limits the log lines that clients of an engine can cause. There is one limiter for each kind of line: a
// client that tries every port of every service gets no more lines than one that keeps trying the same port.
type lines struct {
	turnedAway lograte.Limiter[aboutClients] // TCP clients
	dropped    lograte.Limiter[aboutDrops]   // datagrams
	unusable   lograte.Limiter[aboutEndpoint]

	acceptErrors lograte.Limiter[struct{}] // most often it is the process that lacks something, not the port
	readErrors   lograte.Limiter[registry.PortKey]
}

// What lines are about.
type (
	aboutClients struct {
		service registry.PortKey
		why     traffic.Reason
	}
	aboutDrops struct {
		service registry.PortKey
		why     traffic.DropReason
	}
	aboutEndpoint struct {
		service registry.PortKey
		addr    registry.Addr
	}
)

// MayLogTurnedAway reports whether the log may say that a client was turned away, and what to append to that line. All services
// share one line about the limit of all connections.
func (l *lines) MayLogTurnedAway(service registry.PortKey, why traffic.Reason) (note string, ok bool) {
	if why == traffic.ConnectionLimit {
		service = registry.PortKey{}
	}
	return l.turnedAway.Allow(aboutClients{service, why})
}

// Drop counts datagrams that are not carried further, for the service that they were meant for, and
// logs it. That a session ended, or moved, while one was on its way is no news.
func (l *lines) Drop(c *Claim, why traffic.DropReason, n int, client netip.AddrPort) {
	c.Tally.Dropped[why].Add(uint64(n))
	if why == traffic.DropEnded {
		return
	}
	if note, ok := l.dropped.Allow(aboutDrops{c.Key, why}); ok {
		from := "datagrams" // whose they were is not known
		if client.IsValid() {
			from = fmt.Sprintf("datagram of %v", client)
		}
		glog.Warningf("%s: %s dropped: %s%s", c.Key, from, why, note)
	}
}

// ReportUnusable logs that an endpoint may not be used: a record has to be mended. It is not yet a drop, or a client
// that is turned away, for there may be other endpoints.
func (l *lines) ReportUnusable(service registry.PortKey, e *rotation.Endpoint, err error) {
	if note, ok := l.unusable.Allow(aboutEndpoint{service, e.Addr}); ok {
		glog.Errorf("%s: endpoint %s is not used: %v%s", service, e.Addr, err, note)
	}
}

// ReportAccept logs that clients cannot be accepted.
func (l *lines) ReportAccept(service registry.PortKey, err error) {
	if note, ok := l.acceptErrors.Allow(struct{}{}); ok {
		glog.Warningf("cannot accept clients of %s: %v; trying again until it can%s", service, err, note)
	}
}

// ReportRead logs that datagrams cannot be read.
func (l *lines) ReportRead(service registry.PortKey, err error) {
	if note, ok := l.readErrors.Allow(service); ok {
		glog.Warningf("cannot read datagrams for %s: %v; trying again until it can%s", service, err, note)
	}
}
