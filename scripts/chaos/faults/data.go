package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/backoff"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

func init() {
	all = append(all,
		Fault{Name: "restore", About: "a snapshot is restored: etcd goes back to an older revision", able: haveEtcdutl, inject: restoreSnapshot},
		Fault{Name: "wipe", About: "every data directory is lost: the same ids, from revision 1", inject: wipe},
		Fault{Name: "replace", About: "another cluster, without data, at the same addresses", inject: replaceCluster},
		Fault{Name: "lose-member", About: "one member loses its data, is removed, and joins again", members: 3, inject: loseMember},
	)
}

// restoreSnapshot is what an operator does after a mistake, with etcdutl: last night's snapshot becomes
// the truth, revisions that were used are used again for other things, and the ids of the cluster
// are the old ones or, with another token, new.
func restoreSnapshot(ctx context.Context, c Target, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	etcdutl := try.Get(process.Etcdutl())
	file := c.Path("snapshot")
	defer os.Remove(file)
	changes := r.IntN(100)
	if r.IntN(2) == 0 {
		c.Token = fmt.Sprintf("restored-%d", r.IntN(1000))
	}
	err = c.Do(ctx, "take a snapshot", func(ctx context.Context, client *clientv3.Client) error {
		return saveSnapshot(ctx, client, file)
	})
	if err != nil {
		return err
	}
	out := try.Get(process.Output(ctx, etcdutl, "snapshot", "status", file, "--write-out=json"))
	var snapshot struct{ Revision int64 }
	if err := json.Unmarshal(out, &snapshot); err != nil {
		return fmt.Errorf("snapshot status: %w: %s", err, out)
	}
	try.Do(c.Write(ctx, changes))
	c.Logf("restore revision %d of %d, token %s", snapshot.Revision, c.Head(), c.Token)
	return c.GoBack(ctx, func(ctx context.Context) (int64, error) {
		c.Kill()
		return snapshot.Revision, c.ReplaceData(func(m *Member, dir string) error {
			_, err := process.Output(ctx, etcdutl, "snapshot", "restore", file, "--data-dir="+dir, "--name="+m.Name,
				"--initial-cluster="+c.InitialCluster(), "--initial-cluster-token="+c.Token, "--initial-advertise-peer-urls="+m.PeerURL())
			return err
		})
	}, c.Start)
}

func saveSnapshot(ctx context.Context, client *clientv3.Client, file string) (err error) {
	defer try.Catch(&err)
	from := try.Get(client.Snapshot(ctx))
	defer from.Close()
	f := try.Get(os.Create(file))
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// wipe is a volume that was not mounted, a container without one, an operator's rm -r: etcd starts
// with the flags that it always had, so its cluster and its members have the ids that they always
// had, and it says truthfully that there is nothing.
func wipe(ctx context.Context, c Target, r *rand.Rand) error {
	down := between(r, 0, time.Second)
	c.Logf("wipe everything, down for %v", down)
	return c.startEmpty(ctx, down)
}

// replaceCluster is a migration behind one name or one load balancer: another cluster answers, with
// ids of its own.
func replaceCluster(ctx context.Context, c Target, r *rand.Rand) error {
	down := between(r, 0, time.Second)
	c.Token = fmt.Sprintf("another-%d", r.IntN(1000))
	c.Logf("replace the cluster by %s, down for %v", c.Token, down)
	return c.startEmpty(ctx, down)
}

func (c Target) startEmpty(ctx context.Context, down time.Duration) error {
	return c.GoBack(ctx, func(ctx context.Context) (int64, error) {
		c.Kill()
		return 0, firstError(sleep(ctx, down), c.ReplaceData(nil))
	}, c.Start)
}

// loseMember is a disk that died. The cluster lives on without the member, which comes back with
// another id and nothing in it, and learns everything from the others. Nothing is lost.
func loseMember(ctx context.Context, c Target, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	i := r.IntN(len(c.Members))
	lost, other := c.Members[i], c.Members[(i+1)%len(c.Members)]
	c.Logf("%s loses its data", lost.Name)
	lost.Kill()
	try.Do(other.AwaitAnswer(ctx))
	err = c.Do(ctx, "have "+lost.Name+" leave and join", func(ctx context.Context, client *clientv3.Client) error {
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
	lost.Extra = []string{"--initial-cluster-state=existing"} // only without data
	defer func() { lost.Extra = nil }()
	return c.Start(ctx)
}

// eventually repeats a change of the members while etcd refuses it for a reason that passes: the other members must have been healthy for
// five seconds. A change whose answer was lost has been made already.
func eventually(ctx context.Context, change func() error) error {
	for {
		err := change()
		if errors.Is(err, rpctypes.ErrMemberNotFound) || errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) || ctx.Err() != nil {
			return err
		}
		backoff.Sleep(ctx, 100*time.Millisecond)
	}
}

func haveEtcdutl() error {
	_, err := process.Etcdutl()
	return err
}
