package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/backoff"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/scripts/chaos/proxynode"
	"kubeproxy/scripts/internal/try"
)

// The soak writes to a healthy etcd as fast as it can. In the end the proxy must hold what etcd holds, and need as much memory and as many
// descriptors as in the beginning.
//
// It has a writer of its own, which keeps no history: that of a million changes would need more memory than the proxy. The other run
// checks each Update.
const (
	soakServices  = 40   // each with a port that opens and closes
	soakEndpoints = 1000 // objects
	soakBatch     = 100  // changes in one transaction
	soakCompact   = 50_000
)

// What may be more at the end than at the beginning. Memory is counted after a collection, which has given
// back to the system what it could: what is resident but not live is pages in which something still lives.
const (
	soakLive       = 1 << 20
	soakResident   = 12 << 20
	soakSockets    = 4
	soakGoroutines = 8
)

// runSoak makes s.soak changes. An error names what has grown.
func runSoak(ctx context.Context, s settings, out io.Writer) (err error) {
	defer try.Catch(&err)
	fmt.Fprintf(out, "soak: -soak=%d -members=%d -seed=%d\n", s.soak, s.members, s.seed)
	x := try.Get(newExperiment(ctx, s, out))
	defer x.close()
	x.writer.Gate.Lock() // its writer pauses
	defer x.writer.Gate.Unlock()
	k := soak{x: x, random: rand.New(rand.NewPCG(s.seed, 3))}

	// The tenth part first: what the first changes make grow (maps, buffers, pools) is not what leaks.
	try.Do(k.write(ctx, s.soak/10))
	before, err := k.rest(ctx)
	if err != nil {
		return fmt.Errorf("before: %w", err)
	}
	began := time.Now()
	x.Logf("before: %s", figures(before))
	for part := range 4 {
		try.Do(k.write(ctx, s.soak/4))
		a := try.Get(x.node.Ask(ctx, proxynode.Query{Brief: true}))
		x.Logf("after %d changes, in the middle of it: %s", (part+1)*(s.soak/4), figures(a))
	}
	took := time.Since(began)
	after, err := k.rest(ctx)
	if err != nil {
		return fmt.Errorf("after: %w", err)
	}
	x.Logf("after: %s", figures(after))
	fmt.Fprintf(out, "%d changes in %v, %.0f a second, and as many more by a tenth before; the final state is equal\n",
		s.soak/4*4, took.Round(time.Millisecond), float64(s.soak/4*4)/took.Seconds())
	fmt.Fprintf(out, "live memory %+.1f MiB, resident %+.1f MiB, descriptors %+d, goroutines %+d\n",
		float64(after.Live-before.Live)/(1<<20), float64(after.Resident-before.Resident)/(1<<20),
		after.Descriptors-before.Descriptors, after.Goroutines-before.Goroutines)
	var more []error
	check := func(what string, was, is, slack int64) {
		if is > was+slack {
			more = append(more, fmt.Errorf("%s: %d, and it was %d", what, is, was))
		}
	}
	check("live bytes", before.Live, after.Live, soakLive)
	check("resident bytes", before.Resident, after.Resident, soakResident)
	check("descriptors", int64(before.Descriptors), int64(after.Descriptors), soakSockets)
	check("goroutines", int64(before.Goroutines), int64(after.Goroutines), soakGoroutines)
	return errors.Join(more...)
}

func figures(a proxynode.Answer) string {
	return fmt.Sprintf("%.1f MiB live, %.1f MiB resident, %d descriptors, %d goroutines; %d services, %d endpoints",
		float64(a.Live)/(1<<20), float64(a.Resident)/(1<<20),
		a.Descriptors, a.Goroutines, a.Source.Services, a.Source.Endpoints)
}

type soak struct {
	x         *experiment
	random    *rand.Rand
	compacted int // changes since the last compaction
}

// write makes n changes, in transactions of many.
func (k *soak) write(ctx context.Context, n int) error {
	for ; n > 0; n -= soakBatch {
		seen := make(map[string]bool) // a transaction may name a key once
		var ops []clientv3.Op
		for len(ops) < min(n, soakBatch) {
			key, value := k.change()
			if seen[key] {
				continue
			}
			seen[key] = true
			if k.random.IntN(10) == 0 {
				ops = append(ops, clientv3.OpDelete(key))
			} else {
				ops = append(ops, clientv3.OpPut(key, value))
			}
		}
		resp, err := k.x.writer.Client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if k.compacted += len(ops); k.compacted >= soakCompact { // or etcd's own quota ends the soak
			k.compacted = 0
			if _, err := k.x.writer.Client.Compact(ctx, resp.Header.Revision-100); err != nil {
				return fmt.Errorf("compact: %w", err)
			}
		}
	}
	return nil
}

// change makes a random record.
func (k *soak) change() (key, value string) {
	r := k.random
	if r.IntN(20) == 0 {
		i := r.IntN(soakServices)
		return fmt.Sprintf("%ssoak/s%d", registry.SpecsPrefix, i),
			fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"s%d","port":%d}`, i, 20_000+r.IntN(10_000))
	}
	i := r.IntN(soakEndpoints)
	return fmt.Sprintf("%ssoak/s%d", registry.EndpointsPrefix, i),
		fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"s%d","endpoints":["10.1.%d.%d:80","10.2.%d.%d:80"]}`,
			i, r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
}

// rest brings the registry to the same size each time, waits until the proxy holds what etcd holds, and asks what the proxy needs.
func (k *soak) rest(ctx context.Context) (_ proxynode.Answer, err error) {
	defer try.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, 2*quietTimeout)
	defer cancel()
	for i := range soakServices {
		key, value := fmt.Sprintf("%ssoak/s%d", registry.SpecsPrefix, i), fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"s%d","port":%d}`, i, 20_000+i)
		try.Get(k.x.writer.Client.Put(ctx, key, value))
	}
	for i := range soakEndpoints {
		key, value := fmt.Sprintf("%ssoak/s%d", registry.EndpointsPrefix, i),
			fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"s%d","endpoints":["10.1.%d.%d:80"]}`, i, k.random.IntN(256), k.random.IntN(256))
		try.Get(k.x.writer.Client.Put(ctx, key, value))
	}
	for {
		err := k.equal(ctx)
		if err == nil {
			break
		}
		if backoff.Sleep(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return proxynode.Answer{}, fmt.Errorf("the proxy does not come to hold what etcd holds: %w", err)
		}
	}
	var least proxynode.Answer
	for range 10 { // the least of ten: work in progress is no leak
		a := try.Get(k.x.node.Ask(ctx, proxynode.Query{Brief: true, Free: true}))
		if least.Resident == 0 || a.Resident < least.Resident {
			least.Resident = a.Resident
		}
		if least.Live == 0 || a.Live < least.Live {
			least.Live = a.Live
		}
		if least.Goroutines == 0 || a.Goroutines < least.Goroutines {
			least.Goroutines, least.Descriptors, least.Source = a.Goroutines, a.Descriptors, a.Source
		}
		backoff.Sleep(ctx, 300*time.Millisecond)
	}
	return least, nil
}

// equal returns how what the handlers hold differs from what etcd holds now.
func (k *soak) equal(ctx context.Context) (err error) {
	defer try.Catch(&err)
	resp := try.Get(k.x.writer.Client.Get(ctx, registry.Prefix, clientv3.WithPrefix()))
	a := try.Get(k.x.node.Ask(ctx, proxynode.Query{}))
	held := a.State()
	n := 0
	for _, kv := range resp.Kvs {
		record, _, err := decode.Decode(string(kv.Key), kv.Value)
		if err != nil {
			return fmt.Errorf("the soak wrote %q: %w", kv.Key, err)
		}
		key := try.Get(registry.ParseKey(string(kv.Key)))
		n++
		if record.Service != nil {
			s := *record.Service
			s.Created = kv.CreateRevision
			record.Service = &s
		}
		if key.Kind == registry.KindService && !held.Services[key.Name].Equal(record.Service) ||
			key.Kind == registry.KindEndpoints && !held.Endpoints[key.Name].Equal(record.Endpoints) {
			return fmt.Errorf("%q at revision %d is another one there", kv.Key, kv.ModRevision)
		}
	}
	if objects := len(held.Services) + len(held.Endpoints); objects != n {
		return fmt.Errorf("it holds %d objects, etcd %d", objects, n)
	}
	return nil
}
