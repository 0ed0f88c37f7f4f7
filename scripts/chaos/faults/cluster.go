package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource"
	"kubeproxy/internal/backoff"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// A Cluster is the etcd under test.
type Cluster struct {
	Members []*Member
	Token   string // of the next start without data: the ids of the cluster depend on it

	dir     string           // for all files; the caller removes it
	hidden  bool             // from the proxy under test
	loss    *packetLoss      // nil for none
	through *process.Process // the grpc-proxy before the members; nil for none
	disk    string           // where a small disk is mounted; "" if none is
	serial  int              // of names in dir
}

// StartCluster starts a cluster without data, and returns when each member answers.
func StartCluster(ctx context.Context, dir string, members int) (*Cluster, error) {
	c := &Cluster{dir: dir, Token: "chaos"}
	for i := range members {
		m, err := newMember(fmt.Sprintf("member%d", i+1), c.Path("data"), dir)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.Members = append(c.Members, m)
	}
	if err := c.Start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Path returns a name below the cluster's directory that was not used before.
func (c *Cluster) Path(what string) string {
	c.serial++
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d", what, c.serial))
}

// Start starts every member that is down, and returns when each member answers.
func (c *Cluster) Start(ctx context.Context) error {
	for _, m := range c.Members {
		if err := c.StartMember(m); err != nil {
			return err
		}
	}
	return c.AwaitAnswers(ctx)
}

// StartMember starts a member that is down.
func (c *Cluster) StartMember(m *Member) error {
	return m.start("--initial-cluster="+c.InitialCluster(), "--initial-cluster-token="+c.Token)
}

// InitialCluster is the flag of that name: the members, for one that has no data yet.
func (c *Cluster) InitialCluster() string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Name+"="+m.PeerURL())
	}
	return strings.Join(all, ",")
}

// AwaitAnswers waits until every member answers a linearizable read.
func (c *Cluster) AwaitAnswers(ctx context.Context) error {
	for _, m := range c.Members {
		if err := m.AwaitAnswer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends every member without warning.
func (c *Cluster) Kill() {
	for _, m := range c.Members {
		m.Kill()
	}
}

// Client returns a client that connects to the members directly, without fault proxies. Etcd must answer now. Later it may fail, and the
// client logs in and connects again by itself. The caller closes it.
func (c *Cluster) Client() (*clientv3.Client, error) {
	return Dial(context.Background(), c.addrs()...)
}

func (c *Cluster) addrs() []string {
	var addrs []string
	for _, m := range c.Members {
		addrs = append(addrs, m.Client)
	}
	return addrs
}

// pageSize is small, so that the list of even a small registry has many pages, and a fault can come between two of them.
const pageSize = 5

// Source is the configuration of the source under test, which connects through the fault proxies. It has a user; etcd asks for it only
// while authentication is on.
func (c *Cluster) Source() etcdsource.Config {
	cfg := etcdsource.Config{PageSize: pageSize, Username: proxyUser, Password: proxyPassword}
	for _, m := range c.Members {
		cfg.Endpoints = append(cfg.Endpoints, "http://"+m.Way.Addr)
	}
	return cfg
}

// HasLossyConnection reports whether a connection is open that has lost bytes.
func (c *Cluster) HasLossyConnection() bool {
	return slices.ContainsFunc(c.Members, func(m *Member) bool { return m.Way.Count(LossyConns) > 0 })
}

// Do calls etcd through a client of its own. Its error begins with what.
func (c *Cluster) Do(ctx context.Context, what string, call func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("no answer for 20s"))
	defer cancel()
	client, err := Dial(ctx, c.addrs()...)
	if err == nil {
		defer client.Close()
		err = call(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Leader returns the member that is the leader by its own status.
func (c *Cluster) Leader(ctx context.Context) (leader *Member, err error) {
	err = c.Do(ctx, "ask for the leader", func(ctx context.Context, client *clientv3.Client) error {
		for ; ctx.Err() == nil; backoff.Sleep(ctx, 20*time.Millisecond) {
			for _, m := range c.Members {
				try, cancel := context.WithTimeout(ctx, time.Second)
				status, err := client.Status(try, m.Client)
				cancel()
				if err == nil && status.Leader == status.Header.MemberId && status.Leader != 0 {
					leader = m
					return nil
				}
			}
		}
		return context.Cause(ctx)
	})
	return leader, err
}

// EachWay calls do for every fault proxy.
func (c *Cluster) EachWay(do func(*Proxy)) {
	for _, m := range c.Members {
		do(m.Way)
	}
}

// Hide keeps the proxy under test away from etcd: its connections are reset, and new ones are refused.
func (c *Cluster) Hide() {
	c.hidden = true
	c.EachWay((*Proxy).Refuse)
}

// Show ends Hide.
func (c *Cluster) Show() error {
	c.hidden = false
	return c.Restore()
}

// Restore opens every fault proxy, unless the cluster is hidden.
func (c *Cluster) Restore() error {
	if c.hidden {
		return nil
	}
	var errs []error
	c.EachWay(func(p *Proxy) { errs = append(errs, p.Restore()) })
	return errors.Join(errs...)
}

// EndLoss ends a loss of packets.
func (c *Cluster) EndLoss() {
	if c.loss != nil {
		c.loss.end()
		c.loss = nil
	}
}

// ReplaceData gives every member another data directory, which fill makes unless it is nil, and removes the old one. No member may be
// running.
func (c *Cluster) ReplaceData(fill func(m *Member, dir string) error) (err error) {
	defer try.Catch(&err)
	for _, m := range c.Members {
		dir := c.Path("data")
		if fill != nil {
			try.Do(fill(m, dir))
		}
		try.Do(os.RemoveAll(m.Data))
		m.Data = dir
	}
	return nil
}
