package node

import (
	"context"

	"golang.org/x/sync/errgroup"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/proxy"
)

// Options says where the services come from and how they are served.
type Options struct {
	Etcd        etcdsource.Config
	Proxy       proxy.Config
	RandomStart bool   // begin each rotation at a random endpoint
	Ready       func() // called once, when the first state has been applied; may be nil
}

// Run carries clients to services until ctx ends. Then it stops accepting, lets relays finish for
// [proxy.Config].DrainTimeout, and returns nil. After that nothing of it is running.
func Run(ctx context.Context, o Options) error {
	source, err := etcdsource.New(o.Etcd)
	if err != nil {
		return err
	}
	balancer := proxy.NewLoadBalancerRR(o.RandomStart)
	proxier := proxy.NewProxier(o.Proxy, balancer)

	// D8: v0.4 started its source before there was anybody to tell. The handlers come first here;
	// and among them the balancer, so that it knows the endpoints of a port before the port opens.
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(balancer, proxier)
	mux := config.NewMux(broadcaster)
	updates := mux.Channel("etcd")

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return source.Run(ctx, updates) })
	g.Go(func() error { return mux.Run(ctx) })
	g.Go(func() error { return proxier.Run(ctx) })
	g.Go(func() error {
		select {
		case <-proxier.Synced():
			if o.Ready != nil {
				o.Ready()
			}
		case <-ctx.Done():
		}
		return nil
	})
	return g.Wait()
}
