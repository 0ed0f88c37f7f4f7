package cluster

import (
	"kubeproxy/internal/etcdmember"
	"kubeproxy/scripts/chaos/faultproxy"
)

// AddGRPCProxy starts etcd's grpc-proxy, and has the fault proxies lead to it instead of to the members.
func (c *Cluster) AddGRPCProxy() error {
	addr, through, err := etcdmember.StartGRPCProxy(c.dir, "", lowPort, highPort, c.addrs()...)
	if err != nil {
		return err
	}
	c.through = through
	c.EachWay(func(p *faultproxy.Proxy) { p.Redirect(addr) })
	return nil
}

// RemoveGRPCProxy has the fault proxies lead to the members again, and ends the grpc-proxy, if there is one.
func (c *Cluster) RemoveGRPCProxy() {
	if c.through == nil {
		return
	}
	for _, m := range c.Members {
		m.Way.Redirect(m.Client)
	}
	c.through.Kill()
	c.through = nil
}
