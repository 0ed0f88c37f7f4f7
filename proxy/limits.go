package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Validate tells what in c cannot be: see [engine.Config.Problems]. A range of ports that holds nothing is another problem.
func (c Config) Validate() error {
	errs := []error{c.Problems()}
	for _, ranges := range append(slices.Collect(maps.Values(c.NamespacePorts)), c.AllowedPorts) {
		for _, r := range ranges {
			if r.First == 0 || r.First > r.Last {
				errs = append(errs, fmt.Errorf("-allowed_ports: %d-%d is no range of ports", r.First, r.Last))
			}
		}
	}
	return errors.Join(errs...)
}
