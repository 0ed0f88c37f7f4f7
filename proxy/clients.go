package proxy

import (
	"context"
	"errors"
	"iter"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// ErrSuccessor is that a successor serves, and has to be asked.
var ErrSuccessor = errors.New("a successor has taken over: ask again")

var errStarting = errors.New("the process takes over from another one: ask again")

// Clients yields the connections and sessions that are selected, some at a time, while they go on, until all were looked at or ctx ends. With
// end they are ended, for the reason [traffic.Killed]. A client that comes, or moves between event loops, meanwhile may be missed or met twice.
// Clients that the kernel carries are not known. An error is the last.
func (p *Proxier) Clients(ctx context.Context, of traffic.Selection, end bool) iter.Seq2[[]traffic.Client, error] {
	return func(yield func([]traffic.Client, error) bool) {
		for from := int64(0); from >= 0; {
			var some []traffic.Client
			var err error
			if err = ctx.Err(); err == nil {
				some, from, err = p.someClients(from, &of, end)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(some) > 0 && !yield(some, nil) {
				return
			}
		}
	}
}

// someClients is one step of Clients.
func (p *Proxier) someClients(from int64, of *traffic.Selection, end bool) (some []traffic.Client, next int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.inChargeLocked(); err != nil {
		return nil, -1, err
	}
	next = p.engine.Clients(from, of, func(c *traffic.Client) bool {
		some = append(some, *c)
		return end
	})
	return some, next, nil
}

// errKernel is why clients cannot be counted.
var errKernel = errors.New("the kernel carries clients here (-kernel=auto), and a node cannot count those: conntrack -L lists them")

// ClientsOf counts the clients of the endpoints that match, of one service or, with the zero name, of all: connections, sessions, and those for which an endpoint is being dialled. It fails if
// the kernel may carry some, and then returns those of userspace.
func (p *Proxier) ClientsOf(service registry.Name, match registry.AddrMatch) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.inChargeLocked(); err != nil {
		return 0, err
	}
	if p.kernel != nil {
		return p.lb.ClientsOf(service, match), errKernel
	}
	return p.lb.ClientsOf(service, match), nil
}
