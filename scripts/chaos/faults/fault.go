package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
)

// A Fault is one way in which etcd, or the network to it, fails. Each file of faults appends its own to [all].
type Fault struct {
	Name   string // as in the table and in -only
	About  string // one line for -h
	Silent bool   // no connection ends with an error, so only silence shows it, and recovery may take longer
	Knob   string // with Silent: the setting of the source that decides how long

	members int  // how large the cluster must be; 0: any size
	login   bool // the proxy needs a user
	small   bool // quick, and without privileges: part of the small run

	// able returns why this machine cannot have the fault (no root, no namespaces, no etcdutl); nil: it can. A nil func is always able.
	// The end of a run lists the faults that it could not have.
	able func() error

	// inject causes the fault and ends it. It returns when etcd can be expected to answer again: what follows is recovery, and is measured.
	// It takes a minute at most and leaves nothing behind, whatever it returns and however early ctx ends. Each choice (which member, how
	// long) is drawn from r, so a seed repeats it. An error means that the harness is broken, and ends the run.
	inject func(ctx context.Context, c Target, r *rand.Rand) error
}

// all are the faults, in the order in which their files are compiled.
var all []Fault

// All returns all faults.
func All() []Fault { return slices.Clone(all) }

// Find returns the fault of a name.
func Find(name string) (Fault, bool) {
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return all[i], true
}

// A Target is what a fault acts on.
type Target struct {
	*Cluster
	Harness
}

// A Harness is what a fault can ask of the run around the cluster.
//
// Only the writer of the run writes keys to etcd, because the history must know each revision. A fault may compact, defragment, move
// leaders, and add alarms and users.
type Harness interface {
	// GoBack is for faults after which etcd has lost writes. Etcd must answer when it is called, because it waits for the writer to finish
	// its transaction. The writer then waits while stop ends etcd and exchanges its data, and while start starts it again. keep is the
	// newest revision so far that the exchanged data have, 0 if they are empty. Snapshots are taken before GoBack or in stop.
	GoBack(ctx context.Context, stop func(ctx context.Context) (keep int64, err error), start func(ctx context.Context) error) error

	// Write waits until the writer has made n more transactions. It is for moments when etcd answers.
	Write(ctx context.Context, n int) error

	// Head is the newest revision that etcd returned to the writer.
	Head() int64

	// PauseNode stops the proxy under test by SIGSTOP, and ResumeNode continues it.
	PauseNode()
	ResumeNode()

	// Logf writes what the fault chose to the log of the run: which member, how long.
	Logf(format string, args ...any)
}

// IsSmall reports whether the fault is quick and needs no privileges: it is part of the small run.
func (f Fault) IsSmall() bool { return f.small }

// Fits reports whether a cluster of so many members can have the fault.
func (f Fault) Fits(members int) bool { return f.members == 0 || f.members == members }

// Able returns why this machine cannot have the fault, or a proxy that does not log in; nil: it can.
func (f Fault) Able(login bool) error {
	if f.login && !login {
		return errors.New("the proxy has no user")
	}
	if f.able == nil {
		return nil
	}
	return f.able()
}

// Inject causes the fault and ends it. Each choice is drawn from r. If it fails, the cluster may need [Cluster.Heal].
func (f Fault) Inject(ctx context.Context, target Target, r *rand.Rand) error {
	return f.inject(ctx, target, r)
}
