package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"kubeproxy/scripts/chaos/faultproxy"
)

func init() {
	all = append(all,
		Fault{Name: "auth", About: "authentication is turned on, tokens of 5 s expire, members forget them, and it is turned off", login: true, inject: auth})
}

// auth is a cluster that is secured while it is in use. The proxy has a user from the start, which etcd ignores until authentication is on.
// A token expires five seconds after its last use, and only the member that issued it has it in memory. So old connections have none, new
// ones log in, and a restart forgets all.
func auth(ctx context.Context, c Target, r *rand.Rand) error {
	length, changes := between(r, 5500*time.Millisecond, 8*time.Second), r.IntN(20)
	renewed, restarted := r.IntN(2) == 0, r.IntN(2) == 0
	c.Logf("authentication on for %v; new connections first: %t; then a restart: %t", length, renewed, restarted)
	if err := c.EnableAuth(ctx); err != nil {
		return err
	}
	if renewed {
		c.EachWay(func(p *faultproxy.Proxy) { p.Reset(faultproxy.All) })
	}
	err := firstError(c.Write(ctx, changes), sleep(ctx, length))
	if err == nil && restarted {
		m := c.Members[r.IntN(len(c.Members))]
		m.Kill()
		err = c.Start(ctx)
	}
	if err == nil {
		err = c.Write(ctx, changes)
	}
	return firstError(err, c.DisableAuth(ctx))
}
