package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/etcdmember"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

func init() {
	faults = append(faults,
		fault{name: "restore", about: "a snapshot is restored: etcd goes back to an older revision", able: haveEtcdutl, inject: restoreSnapshot},
		fault{name: "wipe", about: "every data directory is lost: the same ids, from revision 1", inject: wipe},
		fault{name: "replace", about: "another cluster, without data, at the same addresses", inject: replaceCluster},
		fault{name: "lose-member", about: "one member loses its data, is removed, and joins again", members: 3, inject: loseMember},
	)
}

// restoreSnapshot is what an operator does after a mistake, with etcdutl: last night's snapshot becomes
// the truth, revisions that were used are used again for other things, and the ids of the cluster
// are the old ones or, with another token, new.
func restoreSnapshot(ctx context.Context, c *cluster, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	etcdutl := try.Get(etcdmember.Etcdutl())
	file := c.path("snapshot")
	defer os.Remove(file)
	changes := r.IntN(100)
	if r.IntN(2) == 0 {
		c.token = fmt.Sprintf("restored-%d", r.IntN(1000))
	}
	err = c.do(ctx, "take a snapshot", func(ctx context.Context, client *clientv3.Client) error {
		return saveSnapshot(ctx, client, file)
	})
	if err != nil {
		return err
	}
	out := try.Get(run(ctx, etcdutl, "snapshot", "status", file, "--write-out=json"))
	var snapshot struct{ Revision int64 }
	if err := json.Unmarshal(out, &snapshot); err != nil {
		return fmt.Errorf("snapshot status: %w: %s", err, out)
	}
	try.Do(c.stage.write(ctx, changes))
	c.stage.logf("restore revision %d of %d, token %s", snapshot.Revision, c.stage.head(), c.token)
	return c.stage.goBack(ctx, func(ctx context.Context) (int64, error) {
		c.kill()
		return snapshot.Revision, c.replaceData(func(m *member, dir string) error {
			_, err := run(ctx, etcdutl, "snapshot", "restore", file, "--data-dir="+dir, "--name="+m.Name,
				"--initial-cluster="+c.initialCluster(), "--initial-cluster-token="+c.token, "--initial-advertise-peer-urls="+m.PeerURL())
			return err
		})
	}, c.start)
}

func saveSnapshot(ctx context.Context, client *clientv3.Client, file string) (err error) {
	defer try.Catch(&err)
	from := try.Get(client.Snapshot(ctx))
	defer from.Close()
	f := try.Get(os.Create(file))
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// run runs a program to its end and gives what it printed.
func run(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	process.TieToParent(cmd)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// wipe is a volume that was not mounted, a container without one, an operator's rm -r: etcd starts
// with the flags that it always had, so its cluster and its members have the ids that they always
// had, and it says truthfully that there is nothing.
func wipe(ctx context.Context, c *cluster, r *rand.Rand) error {
	down := between(r, 0, time.Second)
	c.stage.logf("wipe everything, down for %v", down)
	return c.startEmpty(ctx, down)
}

// replaceCluster is a migration behind one name or one load balancer: another cluster answers, with
// ids of its own.
func replaceCluster(ctx context.Context, c *cluster, r *rand.Rand) error {
	down := between(r, 0, time.Second)
	c.token = fmt.Sprintf("another-%d", r.IntN(1000))
	c.stage.logf("replace the cluster by %s, down for %v", c.token, down)
	return c.startEmpty(ctx, down)
}

func (c *cluster) startEmpty(ctx context.Context, down time.Duration) error {
	return c.stage.goBack(ctx, func(ctx context.Context) (int64, error) {
		c.kill()
		return 0, firstError(sleep(ctx, down), c.replaceData(nil))
	}, c.start)
}

// loseMember is a disk that died. The cluster lives on without the member, which comes back with
// another id and nothing in it, and learns everything from the others. Nothing is lost.
func loseMember(ctx context.Context, c *cluster, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	i := r.IntN(len(c.members))
	lost, other := c.members[i], c.members[(i+1)%len(c.members)]
	c.stage.logf("%s loses its data", lost.Name)
	lost.Kill()
	try.Do(other.answers(ctx))
	err = c.do(ctx, "have "+lost.Name+" leave and join", func(ctx context.Context, client *clientv3.Client) error {
		client.SetEndpoints(other.Client)
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.Name == lost.Name {
				if err := eventually(ctx, func() error { _, err := client.MemberRemove(ctx, m.ID); return err }); err != nil {
					return err
				}
			}
		}
		return eventually(ctx, func() error { _, err := client.MemberAdd(ctx, []string{lost.PeerURL()}); return err })
	})
	if err != nil {
		return err
	}
	try.Do(os.RemoveAll(lost.Data))
	lost.extra = []string{"--initial-cluster-state=existing"} // only looked at without data
	defer func() { lost.extra = nil }()
	return c.start(ctx)
}

// eventually repeats a change of the members while etcd refuses it for a reason that passes: it wants to
// have seen the others well for five seconds. A change whose answer was lost has been made already.
func eventually(ctx context.Context, change func() error) error {
	for {
		err := change()
		if errors.Is(err, rpctypes.ErrMemberNotFound) || errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) || ctx.Err() != nil {
			return err
		}
		_ = sleep(ctx, 100*time.Millisecond) // if it ends early, so does the loop
	}
}
