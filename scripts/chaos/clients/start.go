package clients

import (
	"context"
	"math/rand/v2"
)

// Start starts clients: so many TCP connections a second, and so many UDP clients at any time. The func that it returns stops them, and
// waits until the last has its answer.
func (c *Clients) Start(ctx context.Context, connections, flows int, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	tcp, udp := c.Services[:tcpServices], c.Services[tcpServices:]
	c.wg.Go(func() { c.connect(ctx, tcp, connections, rand.New(rand.NewPCG(seed, 1<<32))) })
	for i := range flows {
		c.wg.Go(func() { c.talk(ctx, udp, rand.New(rand.NewPCG(seed, 1<<32+1+uint64(i)))) })
	}
	return func() {
		cancel()
		c.wg.Wait()
	}
}
