package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxSourceRanges bounds the ranges of one service, since each new connection is compared with them.
// Cloud load balancers, which the field was made for, stop at some hundreds.
const maxSourceRanges = 1000

// sourceRanges reads the list in the spec of a service of the ranges that may connect.
func (b *body) sourceRanges(spec *jsonSpec, s *serviceSpec) error {
	switch {
	case isNull(spec.LoadBalancerSourceRanges):
	case b.nested:
		var listed []string // and not s itself, which would have to be on the heap
		if err := unmarshal(rangesField, spec.LoadBalancerSourceRanges, &listed); err != nil {
			return err
		}
		s.ranges = listed
	default:
		s.odd = append(s.odd, "loadBalancerSourceRanges is no field of this version and does not count; the annotation of that name does")
	}
	return nil
}

// rangesField is where Kubernetes keeps the ranges.
const rangesField = "spec.loadBalancerSourceRanges"

// setSourceRanges sets who may connect: by the list in the spec, or else by the annotation that came before the list, ranges separated
// by commas. A list that cannot be read whole is an error: the rest of it would refuse the wrong clients, or none.
func (spec *serviceSpec) setSourceRanges(t *Terms) error {
	listed, in := spec.ranges, rangesField
	if annotation := spec.annotations[sourceRangesAnnotation]; len(listed) == 0 && strings.TrimSpace(annotation) != "" {
		listed, in = strings.Split(annotation, ","), "annotation "+sourceRangesAnnotation
	}
	switch {
	case len(listed) == 0:
		return nil
	case len(listed) > maxSourceRanges:
		return fmt.Errorf("%s lists %d ranges, more than %d", in, len(listed), maxSourceRanges)
	}
	ranges := make([]netip.Prefix, 0, len(listed))
	for _, text := range listed {
		r, err := parseRange(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%s holds %s: %w", in, Quote(text), err)
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	t.SourceRanges = slices.Compact(ranges)
	return nil
}

// sourceRangesAnnotation is where Kubernetes 1.2 kept the ranges, before they were a field.
const sourceRangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"

// parseRange reads a range of addresses, as in 10.0.0.0/8, and gives it in its one form. Like
// Kubernetes it takes a range that is written by any address inside it.
func parseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("not a range of addresses such as 10.0.0.0/8")
	case p.Addr().Is4In6() && p.Bits() < 96:
		return netip.Prefix{}, errors.New("neither a range of IPv4 addresses nor one of IPv6 addresses")
	case p.Addr().Is4In6():
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}
