package tcp

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// WantsHeader reports whether the endpoint gets a header of the PROXY protocol before the client's first byte.
func (c *Connection) WantsHeader() bool { return c.Claim.ProxyHeader != registry.NoProxyHeader }

// AppendHeader appends that header to b: at most [proxyproto.MaxWritten] bytes, none if the service wants none. at is the address of this
// node that the connection leads to. Each connection to an endpoint begins with a header, and none of its bytes counts as the client's.
func (c *Connection) AppendHeader(b []byte, at netip.AddrPort) []byte {
	if c.others != nil && c.others.goal.IsValid() {
		at = c.others.goal
	}
	return proxyproto.Append(b, c.Claim.ProxyHeader, c.client, at)
}

// HeaderTimeout is how long a client that comes by another proxy may take to say who it is.
const HeaderTimeout = 3 * time.Second

// AwaitsHeader reports whether the client comes by another proxy, and has still to say who it is by a PROXY header. Until then it is
// counted as any other, and gets no endpoint: Introduce or RejectHeader follows.
func (c *Connection) AwaitsHeader() bool { return c.awaitsHeader }

// Introduce notes what the header says, of which h has the addresses. From then on the client is who the header names, for all that the proxy does and reports. It
// returns false if the service does not allow that client, whose account is closed then.
func (c *Connection) Introduce(h proxyproto.Header, header []byte) bool {
	c.awaitsHeader = false
	c.other().introduced = uint16(len(header))
	if h.Source.IsValid() {
		if v := glog.V(2); v {
			v.Infof("%s: %s came by %s", c.Claim.Key, h.Source, c.client)
		}
		o := c.other()
		o.via, o.goal, c.client = c.client, h.Destination, h.Source
		o.tlvs = proxyproto.Extensions(header)
	}
	if !c.Claim.Allows(c.client.Addr()) {
		c.TurnAway(traffic.SourceNotAllowed, nil)
		return false
	}
	if !c.join() {
		c.TurnAway(traffic.ClientLimit, nil)
		return false
	}
	return true
}

// FromClient is how many bytes the client has sent, its own PROXY header included, once all were written to the endpoint. It is not known of a client
// whom the header of another proxy named to a predecessor of an earlier release.
func (c *Connection) FromClient() (n uint64, known bool) {
	if c.others == nil {
		return c.Sent, true
	}
	return c.Sent + uint64(c.others.introduced), c.others.introduced > 0 || !c.others.via.IsValid()
}

// RejectHeader ends a client that sent no valid header in time. A client that left before it sent anything is not counted as turned away:
// other proxies find out in this way whether the port is open. err is that of [proxyproto.Parse] or of the read, [io.EOF] for the end, nil
// for a timeout. n is how many bytes there were.
func (c *Connection) RejectHeader(n int, err error) {
	switch {
	case n > 0 || err == nil:
		if note, ok := c.base.Lines.MayLogTurnedAway(c.Claim.Key, traffic.NoProxyHeader); ok {
			glog.Warningf("%s: client %s was turned away: %s: %s%s", c.Claim.Key, c.client, traffic.NoProxyHeader.Refusal(), lackOfHeader(err), note)
		}
		c.End(traffic.NoProxyHeader)
	case err == io.EOF:
		c.End(traffic.ClientFinished)
	default:
		c.End(traffic.ClientReset)
	}
}

// lackOfHeader says in words what a client did in place of sending its header; nil: nothing in time.
func lackOfHeader(err error) string {
	switch {
	case err == nil:
		return fmt.Sprintf("its PROXY header was not complete after %v", HeaderTimeout)
	case err == io.EOF:
		return "it ended within its PROXY header"
	}
	return err.Error()
}
