package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Status is what the kernel carries, and why not more.
type Status struct {
	Off      error    // why it carries no port at all; nil: it may
	Forwards [2]error // why the node does not forward IPv4, and IPv6; nil: it does
	Ports    []int    // open ports by [Reason]
}

// Complaint returns what an operator can change for the kernel to carry what -kernel=auto asks for, in a sentence or two for logs and pages; ""
// for nothing. Ports that stay in userspace beside others that the kernel carries are no complaint, and neither is what passes by itself. A nil status has none.
func (s *Status) Complaint() string {
	if s == nil {
		return ""
	}
	open, transient := 0, s.Ports[NotCheckedYet]+s.Ports[InDoubt]+s.Ports[Overdue]+s.Ports[Overridden]
	for _, n := range s.Ports {
		open += n
	}
	switch {
	case open == 0 || errors.Is(s.Off, errNotYet) || s.Off == nil && s.Ports[Off] > 0: // it begins, or it ends
		return ""
	case s.Off != nil:
		return fmt.Sprintf("-kernel=auto carries no port in the kernel: %v. Userspace serves all clients.", s.Off)
	case s.Ports[NotForwarded] > 0:
		return fmt.Sprintf("-kernel=auto leaves %s in userspace: %v.", ports(s.Ports[NotForwarded]), cmp.Or(s.Forwards[0], s.Forwards[1]))
	case s.Ports[Carried] > 0 || transient > 0:
		return ""
	}
	var why []Reason
	for r := range obstacles {
		if s.Ports[r] > 0 {
			why = append(why, r)
		}
	}
	if len(why) == 0 {
		return ""
	}
	slices.SortFunc(why, func(a, b Reason) int { return cmp.Or(s.Ports[b]-s.Ports[a], int(a)-int(b)) })
	counts := make([]string, len(why))
	for i, r := range why {
		counts[i] = fmt.Sprintf("%s %s", ports(s.Ports[r]), obstacles[r].is)
	}
	return fmt.Sprintf("-kernel=auto carries no port in the kernel: %s. %s.", strings.Join(counts, "; "), obstacles[why[0]].change)
}

// obstacles are the reasons that stay until an operator changes something: what is so of ports, and what to change.
var obstacles = map[Reason]struct{ is, change string }{
	Terms:      {"of services that want what the kernel cannot do", "The page of each service says what: leave that out of its record, or leave out -kernel=auto"},
	Weights:    {"with endpoints that have weights", "Give each endpoint of a service weight 1, or leave out -kernel=auto"},
	ByFlag:     {"bound by a flag", "Leave out -max_connections_per_service, -max_udp_sessions_per_service, -max_connections_per_client, -idle_timeout, -on_removal and -proxy_protocol_from, or -kernel=auto"},
	Addresses:  {"at loopback or link-local addresses of services", "Leave out -kernel=auto, or give services other addresses by kube-proxy/listen"},
	TooMany:    {"with too many endpoints", "Give a port 512 endpoints at most"},
	Address:    {"with an endpoint that the kernel cannot reach", "Give endpoints by addresses of other machines: no host names, and none of this node"},
	Families:   {"with endpoints of IPv4 and of IPv6, or of another family than their address", "Give each service endpoints of one family, that of its address"},
	NotChecked: {"whose endpoints are not checked", "Give -check_endpoints, or the annotation haproxy.org/check to services; a UDP port needs kube-proxy/check-udp"},
}

func ports(n int) string {
	if n == 1 {
		return "1 port"
	}
	return fmt.Sprintf("%d ports", n)
}
