package anyip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/internal/lograte"
)

// Protocol is the protocol of the routes (rtnetlink(7), rtm_protocol): a number that no other program is known to use.
const Protocol = 107

// ErrNoCapability is why there are no routes where the process may not make any.
var ErrNoCapability = errors.New("it takes CAP_NET_ADMIN")

// lookEvery is how often the routes are made sure of. To do so costs a system call or two for each.
const lookEvery = 500 * time.Millisecond

// Routes are those of one process. Make them with [Open]. Nil are none. Any goroutine may call the methods.
type Routes struct {
	ranges []netip.Prefix
	metric uint32

	restored atomic.Uint64
	missing  atomic.Pointer[map[netip.Prefix]error] // why, by range, as the last attempt found; nil before the first. A map is replaced, never edited
	made     sync.Map                               // ranges whose routes were not there before
	lines    lograte.Limiter[netip.Prefix]
	failures lograte.Limiter[netip.Prefix] // lines about routes that are missing from now on
}

func open(ranges []netip.Prefix, instance string) (*Routes, error) {
	h := fnv.New32a()
	h.Write([]byte(instance)) // which always works
	r := &Routes{metric: h.Sum32()>>1 | 1}
	for _, p := range ranges {
		r.ranges = append(r.ranges, p.Masked())
	}
	return r, nil
}

// onSocket calls a function with a netlink socket for routes.
func onSocket(do func(*netlink.Conn) error) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer conn.Close()
	return do(conn)
}

// Install makes the routes. Those that exist, as those of a predecessor do, stay as they are.
func (r *Routes) Install() error {
	if r == nil || len(r.ranges) == 0 {
		return nil
	}
	err := onSocket(func(conn *netlink.Conn) error {
		r.ensure(conn)
		return nil
	})
	if err != nil {
		r.missAll(err)
	}
	return r.Problem()
}

// Prune deletes the routes that a predecessor had for other ranges. It is to be called once the predecessor guards them no more.
func (r *Routes) Prune() error {
	return r.delete(func(p netip.Prefix) bool { return !slices.Contains(r.ranges, p) })
}

// Guard makes those routes again that another program has deleted, and those that could not be made before, until ctx ends.
func (r *Routes) Guard(ctx context.Context) error {
	if r == nil || len(r.ranges) == 0 {
		return nil
	}
	return onSocket(func(conn *netlink.Conn) error {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.restore(conn)
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// restore makes the routes that are missing, and says so; also of a route that is missing since now.
func (r *Routes) restore(conn *netlink.Conn) {
	before := r.why()
	for _, p := range r.ensure(conn) {
		wasMissing := before[p] != nil
		if !wasMissing {
			r.restored.Add(1)
		}
		switch note, ok := r.lines.Allow(p); {
		case !ok:
		case wasMissing:
			glog.Infof("-service_cidr: this node answers for %v%s", p, note)
		default:
			glog.Warningf("-service_cidr: another program has deleted the route to %v, or the loopback was down; it is there again%s", p, note)
		}
	}
	for p, err := range r.why() {
		if before[p] != nil {
			continue
		}
		if note, ok := r.failures.Allow(p); ok {
			glog.Errorf("-service_cidr: this node does not answer for %v any more, and services at its addresses get no clients: %v%s", p, err, note)
		}
	}
}

// ensure makes the routes that are missing, and returns their ranges. It keeps why others still are.
func (r *Routes) ensure(conn *netlink.Conn) (made []netip.Prefix) {
	missing := make(map[netip.Prefix]error)
	for _, p := range r.ranges {
		switch failed := change(conn, unix.RTM_NEWROUTE, netlink.Create|netlink.Excl, p, r.metric); {
		case failed == nil:
			made = append(made, p)
			r.made.Store(p, true)
		case errors.Is(failed, syscall.EEXIST):
		case errors.Is(failed, syscall.EPERM):
			missing[p] = ErrNoCapability
		default:
			missing[p] = fmt.Errorf("route to %v: %w", p, failed)
		}
	}
	r.missing.Store(&missing)
	return made
}

// missAll keeps why no route can be made.
func (r *Routes) missAll(err error) {
	missing := make(map[netip.Prefix]error)
	for _, p := range r.ranges {
		missing[p] = err
	}
	r.missing.Store(&missing)
}

// why returns why routes are missing, by range.
func (r *Routes) why() map[netip.Prefix]error {
	if r == nil {
		return nil
	}
	if missing := r.missing.Load(); missing != nil {
		return *missing
	}
	return nil
}

// Problem returns why routes are missing; nil: none is.
func (r *Routes) Problem() error {
	var all []error
	missing := r.why()
	for _, p := range slices.SortedFunc(maps.Keys(missing), netip.Prefix.Compare) {
		if err := missing[p]; !slices.Contains(all, err) { // ErrNoCapability keeps all from being made
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// Missing returns how many ranges have no route.
func (r *Routes) Missing() int { return len(r.why()) }

// Restored counts the routes that another program had deleted.
func (r *Routes) Restored() uint64 {
	if r == nil {
		return 0
	}
	return r.restored.Load()
}

// Remove deletes the routes, and those that a predecessor had and that were not pruned.
func (r *Routes) Remove() error {
	return r.delete(func(netip.Prefix) bool { return true })
}

// Withdraw deletes the routes that were not there before, and leaves the others to a predecessor, which goes on.
func (r *Routes) Withdraw() error {
	return r.delete(func(p netip.Prefix) bool {
		_, made := r.made.Load(p)
		return made
	})
}

// delete deletes the routes of a process, its predecessors and its successors that are wanted.
func (r *Routes) delete(wanted func(netip.Prefix) bool) error {
	if r == nil {
		return nil
	}
	return onSocket(func(conn *netlink.Conn) error {
		_, err := deleteRoutes(conn, func(p netip.Prefix, metric uint32) bool { return metric == r.metric && wanted(p) })
		return err
	})
}

// Cleanup deletes the routes of all processes of ours in this network namespace, and returns their ranges. One that runs makes its own again.
func Cleanup() (deleted []netip.Prefix, err error) {
	err = onSocket(func(conn *netlink.Conn) error {
		deleted, err = deleteRoutes(conn, func(netip.Prefix, uint32) bool { return true })
		return err
	})
	return deleted, err
}

// deleteRoutes deletes those routes of ours that are wanted, and returns the ranges of those that it has deleted.
func deleteRoutes(conn *netlink.Conn, wanted func(p netip.Prefix, metric uint32) bool) (deleted []netip.Prefix, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, unix.SizeofRtMsg)
		request[0] = family
		all, failed := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request | netlink.Dump}, Data: request})
		if failed != nil {
			return deleted, errors.Join(err, fmt.Errorf("list routes: %w", failed))
		}
		for _, m := range all {
			p, metric, ours := read(m)
			if !ours || !wanted(p, metric) {
				continue
			}
			if failed := deleteRoute(conn, p, metric); failed != nil {
				err = errors.Join(err, failed)
			} else {
				deleted = append(deleted, p)
			}
		}
	}
	return deleted, err
}

// deleteRoute deletes a route, if it is there.
func deleteRoute(conn *netlink.Conn, p netip.Prefix, metric uint32) error {
	if err := change(conn, unix.RTM_DELROUTE, 0, p, metric); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("route to %v: %w", p, err)
	}
	return nil
}

// Where the fields of struct rtmsg are (rtnetlink(7)).
const (
	ofFamily = iota
	ofDestinationBits
	ofSourceBits
	ofService
	ofTable
	ofProtocol
	ofScope
	ofType
)

// change makes or deletes a route.
func change(conn *netlink.Conn, what netlink.HeaderType, flags netlink.HeaderFlags, p netip.Prefix, metric uint32) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("the loopback: %w", err)
	}
	route := make([]byte, unix.SizeofRtMsg)
	route[ofFamily], route[ofDestinationBits] = unix.AF_INET, byte(p.Bits())
	route[ofTable], route[ofProtocol], route[ofScope], route[ofType] = unix.RT_TABLE_LOCAL, Protocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL
	source := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if p.Addr().Is6() {
		route[ofFamily], source = unix.AF_INET6, netip.IPv6Loopback()
	}
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.RTA_DST, p.Addr().AsSlice())
	e.Uint32(unix.RTA_OIF, uint32(lo.Index))
	e.Uint32(unix.RTA_PRIORITY, metric)
	e.Bytes(unix.RTA_PREFSRC, source.AsSlice())
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: what, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: append(route, attributes...),
	})
	return err
}

// read returns the range and the metric of a route; false: it is not one of ours.
func read(m netlink.Message) (p netip.Prefix, metric uint32, ours bool) {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[ofProtocol] != Protocol || m.Data[ofTable] != unix.RT_TABLE_LOCAL {
		return p, 0, false
	}
	d, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return p, 0, false
	}
	for d.Next() {
		switch d.Type() {
		case unix.RTA_DST:
			if addr, ok := netip.AddrFromSlice(d.Bytes()); ok {
				p = netip.PrefixFrom(addr, int(m.Data[ofDestinationBits]))
			}
		case unix.RTA_PRIORITY:
			if b := d.Bytes(); len(b) == 4 {
				metric = binary.NativeEndian.Uint32(b)
			}
		}
	}
	return p, metric, p.IsValid()
}
