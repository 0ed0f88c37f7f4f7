package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/internal/backoff"
	"kubeproxy/registry"
	"kubeproxy/scripts/chaos/proxynode"
)

// quietTimeout is how long a step may take before the run fails. It is not one of the bounds in the table.
const quietTimeout = time.Minute

// answers waits until etcd answers a linearizable read, and returns when it did. Recovery is counted from then on.
func (x *experiment) answers(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	for {
		try, cancelTry := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := x.writer.Client.Get(try, truth.SerialKey, clientv3.WithCountOnly())
		cancelTry()
		if err == nil {
			return time.Now(), nil
		}
		if ctx.Err() != nil {
			return time.Time{}, fmt.Errorf("etcd has not come back: %w", err)
		}
		backoff.Sleep(ctx, 10*time.Millisecond)
	}
}

// quiet is a quiet point: the writer pauses, and what is served must become equal to the history. It returns when the last change had
// reached the proxier. It also compares the state of the handlers and the ports.
func (x *experiment) quiet(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	x.writer.Gate.Lock()
	defer x.writer.Gate.Unlock()
	for len(x.settledAt) > 0 {
		<-x.settledAt // of an earlier quiet point
	}
	op, port := x.writer.Settled()
	revision := x.writer.Commit(ctx, []truth.Op{op})
	if revision == 0 {
		return time.Time{}, errors.New("etcd took no write")
	}
	var at time.Time
	for at.IsZero() {
		select {
		case s := <-x.settledAt:
			if s.port == port {
				at = s.at
			}
		case <-x.recorder.Failed():
			return time.Time{}, wrongState{x.recorder.Err()}
		case <-x.node.Exited():
			return time.Time{}, x.node.Running()
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			a, err := x.node.Ask(last, proxynode.Query{Brief: true})
			return time.Time{}, wrongState{fmt.Errorf("for %v the node has not come to revision %d of etcd; its source says %+v, %v", quietTimeout, revision, a.Source, err)}
		}
	}
	if err := x.recorder.WaitFor(ctx, revision); err != nil {
		return at, wrongState{err}
	}
	a, err := x.node.Ask(ctx, proxynode.Query{})
	if err != nil {
		return at, err
	}
	if err := x.recorder.Same(a.State().Services, a.State().Endpoints); err != nil {
		return at, wrongState{fmt.Errorf("at a quiet point the handlers hold another state than they received:\n    %w", err)}
	}
	if err := samePorts(a); err != nil {
		return at, wrongState{fmt.Errorf("at a quiet point the ports are not those of the services:\n    %w", err)}
	}
	return at, nil
}

// A wrongState is what must never be.
type wrongState struct{ error }

// samePorts returns how the claims on ports differ from what the services ask for.
func samePorts(a proxynode.Answer) error {
	wanted := make(map[registry.ListenerID][]string)
	for name, s := range a.State().Services {
		for _, p := range s.Ports {
			id := p.ID()
			if claim := (registry.PortKey{Name: name, Port: p.Name}).String(); !slices.Contains(wanted[id], claim) {
				wanted[id] = append(wanted[id], claim)
			}
		}
	}
	var differences []string
	for _, p := range a.Ports {
		id := p.Listener
		var claims []string
		for _, c := range p.Claims {
			claims = append(claims, c.String())
		}
		slices.Sort(claims)
		want := slices.Sorted(slices.Values(wanted[id]))
		if !slices.Equal(claims, want) {
			differences = append(differences, fmt.Sprintf("%v is claimed by %v; the services that ask for it are %v", id, claims, want))
		}
		if p.Err != "" && !strings.Contains(p.Err, "permission denied") { // to open a low port takes privileges
			differences = append(differences, fmt.Sprintf("%v of %v is not open: %s", id, claims, p.Err))
		}
		delete(wanted, id)
	}
	for id := range maps.Keys(wanted) {
		differences = append(differences, fmt.Sprintf("%v is not claimed; %v ask for it", id, wanted[id]))
	}
	if len(differences) > 0 {
		return errors.New(strings.Join(differences, "\n    "))
	}
	return nil
}
