package proxy

import (
	"errors"
	"slices"

	"kubeproxy/registry"
)

var errPortNotAllowed = errors.New("no service may have it (-allowed_ports)")

var errPortNotAllowedIn = errors.New("no service of this namespace may have it (-allowed_ports)")

var errPortReserved = errors.New("this proxy has it for its operators")

var errPortOfEtcd = errors.New("the etcd on this machine has it (-etcd_servers)")

// refusal reports why a service may not claim a port; nil: it may.
func (c *Config) refusal(service registry.Name, id registry.NodePort) error {
	if id.Protocol == registry.TCP {
		switch {
		case slices.Contains(c.ReservedPorts, id.Number):
			return errPortReserved
		case slices.Contains(c.EtcdPorts, id.Number):
			return errPortOfEtcd
		}
	}
	if len(c.AllowedPorts) == 0 && len(c.NamespacePorts) == 0 {
		return nil
	}
	allowed, named := c.NamespacePorts[service.Namespace]
	if !named {
		allowed = c.AllowedPorts
	}
	if slices.ContainsFunc(allowed, func(r PortRange) bool { return r.First <= id.Number && id.Number <= r.Last }) {
		return nil
	}
	if len(c.NamespacePorts) > 0 {
		return errPortNotAllowedIn
	}
	return errPortNotAllowed
}
