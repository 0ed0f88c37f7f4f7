package main

import (
	"context"
	"math/rand/v2"
)

// A fault is one way in which etcd, or the way there, misbehaves. The faults are registered in the
// files that describe them, by appending to [faults].
type fault struct {
	name    string // as in the table and in -only
	about   string // one line for -h
	members int    // how large the cluster must be; 0: any size
	silent  bool   // nobody is told that anything ended: only silence tells, so recovery may take longer
	knob    string // with silent: the setting of the source that decides how long
	login   bool   // the proxy needs a user
	small   bool   // quick, and in need of no privileges: part of the small run

	// able says why this machine cannot have the fault (no root, no namespaces, no etcdutl), nil that
	// it can. A nil func is always able. What cannot be had is named at the end of the run.
	able func() error

	// inject brings the fault about and heals it. It returns when etcd can be expected to answer again:
	// what comes after is recovery, and is measured. It takes no longer than a minute and leaves
	// nothing behind, whatever it returns and however early ctx ends. Every choice (which member, how
	// long) is drawn from r, so that a seed repeats it. An error means that the harness is broken, and
	// ends the run.
	inject func(ctx context.Context, c *cluster, r *rand.Rand) error
}

// faults are all that can be injected, in the order in which their files are compiled. Each turn of a
// run brings every one of them, in an order that the seed decides.
var faults []fault

// A stage is what a fault can ask of the experiment around the cluster. The cluster has it as c.stage.
//
// The writer is the only one who writes to etcd, in whatever key: the history must know of every
// revision. A fault may compact, defragment, move leaders, add alarms and users; it must not put.
type stage interface {
	// goBack is for faults after which etcd no longer knows what it knew. Etcd must be answering when it
	// is called, or it waits for ever for the writer to finish. The writer then stands still while stop
	// ends etcd and exchanges its data, and while start starts it again; keep is the newest revision
	// that the exchanged data still have of what was written so far, 0 when they are empty. The
	// caller takes snapshots before goBack or in stop.
	goBack(ctx context.Context, stop func(ctx context.Context) (keep int64, err error), start func(ctx context.Context) error) error

	// write waits until the writer has made n more transactions. Only for moments when etcd answers.
	write(ctx context.Context, n int) error

	// head is the newest revision that etcd gave the writer.
	head() int64

	// pauseNode stops the proxy under test as SIGSTOP does, resumeNode lets it go on.
	pauseNode()
	resumeNode()

	// logf tells the log of the run what the fault decided: which member, how long.
	logf(format string, args ...any)
}
