package faults

import (
	"context"
	"errors"
	"strings"
)

// Heal undoes what a fault that was interrupted has left behind, and returns when etcd answers. It may be called again.
func (c *Cluster) Heal() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	c.hidden = false
	c.EndLoss()
	c.RemoveGRPCProxy()
	for _, m := range c.Members {
		m.Resume()
		m.Extra = nil
	}
	return errors.Join(c.Restore(), c.LeaveSmallDisk(), c.Start(ctx), c.DisarmAlarms(ctx), c.DisableAuth(ctx))
}

// Close ends every process and unmounts what was mounted. It may be called again.
func (c *Cluster) Close() error {
	c.EndLoss()
	c.EachWay((*Proxy).Close)
	c.Kill()
	if c.through != nil {
		c.through.Kill()
	}
	return c.unmount()
}

// LeftBehind names the faults that are still in force; "" for none.
func (c *Cluster) LeftBehind() string {
	var left []string
	for what, is := range map[string]bool{"packet loss": c.loss != nil, "grpc-proxy": c.through != nil, "small disk": c.disk != "", "hidden": c.hidden} {
		if is {
			left = append(left, what)
		}
	}
	return strings.Join(left, ", ")
}
