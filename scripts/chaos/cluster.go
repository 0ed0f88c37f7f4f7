package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// A cluster is the etcd that is put to the test: one member or three, each a process of its own, with
// a fault proxy between it and the proxy. Its methods are for one goroutine.
type cluster struct {
	stage   stage
	dir     string // for everything that it writes; the caller removes it
	members []*member
	token   string // makes the ids of the cluster
	hidden  bool
	loss    *packetLoss      // nil: packets arrive
	through *process.Process // the grpc-proxy in between; nil: none
	disk    string           // where a small disk is mounted; "" for nowhere
	serial  int              // of names in dir
}

// startCluster starts a cluster without data, and returns when each member answers.
func startCluster(ctx context.Context, dir string, members int, stage stage) (*cluster, error) {
	c := &cluster{stage: stage, dir: dir, token: "chaos"}
	for i := range members {
		m, err := newMember(fmt.Sprintf("member%d", i+1), c.path("data"), dir)
		if err != nil {
			c.close()
			return nil, err
		}
		c.members = append(c.members, m)
	}
	if err := c.start(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// path gives a name below the cluster's directory that was not used before.
func (c *cluster) path(what string) string {
	c.serial++
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d", what, c.serial))
}

// start starts every member that is down, and returns when each member answers.
func (c *cluster) start(ctx context.Context) error {
	for _, m := range c.members {
		if err := c.startMember(m); err != nil {
			return err
		}
	}
	return c.answers(ctx)
}

func (c *cluster) startMember(m *member) error {
	return m.start("--initial-cluster="+c.initialCluster(), "--initial-cluster-token="+c.token)
}

// initialCluster names the members for one that has no data yet.
func (c *cluster) initialCluster() string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Name+"="+m.PeerURL())
	}
	return strings.Join(all, ",")
}

// answers waits until every member answers a linearizable read.
func (c *cluster) answers(ctx context.Context) error {
	for _, m := range c.members {
		if err := m.answers(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends every member without warning.
func (c *cluster) kill() {
	for _, m := range c.members {
		m.Kill()
	}
}

// client returns a client to the members themselves, past every fault proxy and proxy. Etcd must answer
// now; later it may fail, and the client logs in and connects again by itself. The caller closes it.
func (c *cluster) client() (*clientv3.Client, error) {
	return dialEtcd(context.Background(), c.addrs()...)
}

func (c *cluster) addrs() []string {
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.Client)
	}
	return addrs
}

// pageSize is small enough that the list of even a small registry has many pages, and something may
// happen between two of them.
const pageSize = 5

// source says how the proxy under test gets to etcd: through the fault proxies. It has a user, whom an etcd
// asks for only while authentication is on.
func (c *cluster) source() etcdsource.Config {
	cfg := etcdsource.Config{PageSize: pageSize, Username: proxyUser, Password: proxyPassword}
	for _, m := range c.members {
		cfg.Endpoints = append(cfg.Endpoints, "http://"+m.faultProxy.addr)
	}
	return cfg
}

// crippled tells whether a connection stands that has lost bytes.
func (c *cluster) crippled() bool {
	n := 0
	c.each(func(b *faultProxy) { n += b.conns(crippled) })
	return n > 0
}

// do calls etcd through a client of its own.
func (c *cluster) do(ctx context.Context, what string, call func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("no answer for 20s"))
	defer cancel()
	client, err := dialEtcd(ctx, c.addrs()...)
	if err == nil {
		defer client.Close()
		err = call(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// leader returns the member that leads, as every member that answers sees it.
func (c *cluster) leader(ctx context.Context) (leader *member, err error) {
	err = c.do(ctx, "ask for the leader", func(ctx context.Context, client *clientv3.Client) error {
		for ; ctx.Err() == nil; _ = sleep(ctx, 20*time.Millisecond) {
			for _, m := range c.members {
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

// each does something to every fault proxy.
func (c *cluster) each(do func(*faultProxy)) {
	for _, m := range c.members {
		do(m.faultProxy)
	}
}

// hide keeps the proxy under test away from etcd: what is open is reset, and what comes is refused.
func (c *cluster) hide() {
	c.hidden = true
	c.each((*faultProxy).refuse)
}

// show ends what hide began.
func (c *cluster) show() error {
	c.hidden = false
	return c.restore()
}

// restore opens every fault proxy, unless the cluster is hidden.
func (c *cluster) restore() error {
	if c.hidden {
		return nil
	}
	var errs []error
	c.each(func(b *faultProxy) { errs = append(errs, b.restore()) })
	return errors.Join(errs...)
}

// heal undoes what an inject that failed has left behind, and returns when etcd answers. It may be
// called again.
func (c *cluster) heal() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	c.hidden = false
	c.packetsArrive()
	err := c.connectDirectly()
	for _, m := range c.members {
		m.Resume()
		m.extra = nil
	}
	return errors.Join(err, c.restore(), c.leaveSmallDisk(), c.start(ctx), c.silenceAlarms(ctx), c.disableAuth(ctx))
}

// packetsArrive ends a loss of packets.
func (c *cluster) packetsArrive() {
	if c.loss != nil {
		c.loss.end()
		c.loss = nil
	}
}

// close ends every process and unmounts what was mounted. It may be called again.
func (c *cluster) close() error {
	c.packetsArrive()
	c.each((*faultProxy).close)
	c.kill()
	if c.through != nil {
		c.through.Kill()
	}
	return c.unmount()
}

// replaceData gives every member another data directory, made by fill unless that is nil, and forgets
// the old one. No member may be running.
func (c *cluster) replaceData(fill func(m *member, dir string) error) (err error) {
	defer try.Catch(&err)
	for _, m := range c.members {
		dir := c.path("data")
		if fill != nil {
			try.Do(fill(m, dir))
		}
		try.Do(os.RemoveAll(m.Data))
		m.Data = dir
	}
	return nil
}
