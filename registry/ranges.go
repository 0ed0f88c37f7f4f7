package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxSourceRanges bounds the ranges of one service, since each new connection is compared with them.
// Cloud load balancers, which the field was made for, stop at some hundreds.
const maxSourceRanges = 1000

// sourceRanges reads who may connect to the service: the list in its spec, or else the annotation
// that came before the list, ranges separated by commas.
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
	if s.rangesIn = rangesField; len(s.ranges) > 0 {
		return nil
	}
	annotation, err := b.sourceRangesAnnotation()
	s.annotateRanges(annotation)
	return err
}

// rangesField is where Kubernetes keeps the ranges.
const rangesField = "spec.loadBalancerSourceRanges"

// annotateRanges gives the ranges as the annotation lists them, "" for none.
func (s *serviceSpec) annotateRanges(annotation string) {
	if strings.TrimSpace(annotation) != "" {
		s.ranges, s.rangesIn = strings.Split(annotation, ","), "annotation "+sourceRangesAnnotation
	}
}

// setSourceRanges says who may connect. A list that cannot be read whole is an
// error: what is left of it would shut out the wrong clients, or none at all.
func (spec *serviceSpec) setSourceRanges(s *Service) error {
	switch {
	case len(spec.ranges) == 0:
		return nil
	case len(spec.ranges) > maxSourceRanges:
		return fmt.Errorf("%s lists %d ranges, more than %d", spec.rangesIn, len(spec.ranges), maxSourceRanges)
	}
	ranges := make([]netip.Prefix, 0, len(spec.ranges))
	for _, text := range spec.ranges {
		r, err := parseRange(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%s holds %s: %w", spec.rangesIn, Quote(text), err)
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	s.SourceRanges = slices.Compact(ranges)
	return nil
}

// sourceRangesAnnotation is where Kubernetes 1.2 kept the ranges, before they were a field.
const sourceRangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"

// sourceRangesAnnotation gives that annotation, "" if there is none. Every version has annotations, and
// may hold anything in the others.
func (b *body) sourceRangesAnnotation() (string, error) {
	all := b.Annotations
	if b.nested {
		var metadata struct {
			Annotations json.RawMessage `json:"annotations"`
		}
		if err := b.field("metadata", b.Metadata, &metadata); err != nil {
			return "", err
		}
		all = metadata.Annotations
	}
	if len(all) == 0 || all[0] != '{' {
		return "", nil
	}
	var one struct {
		Ranges *string `json:"service.beta.kubernetes.io/load-balancer-source-ranges"`
	}
	if err := b.field("annotations", all, &one); err != nil || one.Ranges == nil {
		return "", err
	}
	return *one.Ranges, nil
}

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
