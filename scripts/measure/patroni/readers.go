//go:build linux

package patroni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// The events of a replica, under clients that only read: each is a new connection.
const (
	frozen = "replica-frozen"
	behind = "replica-behind"
)

var readerTitles = map[string]string{
	frozen: "a replica's PostgreSQL and Patroni are frozen, under new readers",
	behind: "a replica receives nothing more and falls behind by more than 1 MB, under new readers",
}

var readerColumns = []measure.Metric{
	measure.Column("last", "until the last connection to its PostgreSQL, ms", 1e3),
	measure.Column("given", "connections to it after the first second", 1),
	measure.Column("errors", "clients without an answer", 1),
	measure.Column("readers", "clients", 1),
}

var readerBars = []measure.Bar{{Key: "given", Worst: true}}

var (
	byReplicas = path{"replicas", measure.Subject{Name: "members of the role replica, checks each 500 ms", Ours: true}, 5006}
	haReplicas = path{"haproxy-replicas", measure.Subject{Name: "haproxy, as Patroni documents it", Peer: true}, 5007}
)

const (
	lagLimit    = 1 << 20          // bytes, of the service of replicas
	readerLimit = 2 * time.Second  // for one reader's answer
	watched     = 10 * time.Second // how long readers begin after the event
)

// read begins a reader each 20 ms until ctx ends, and returns which server answered each; "": none.
func read(ctx context.Context, at string) (servers []string) {
	var mu sync.Mutex
	var readers sync.WaitGroup
	for measure.Pause(ctx, pause) == nil {
		readers.Go(func() {
			server := ""
			if s, err := connect(at, readerLimit); err == nil {
				server, _ = s.ask("SELECT host(inet_server_addr())", readerLimit)
				s.close()
			}
			mu.Lock()
			defer mu.Unlock()
			servers = append(servers, server)
		})
	}
	readers.Wait()
	return servers
}

// spoil has something happen to a replica, under readers that take a path.
func (c *cluster) spoil(ctx context.Context, what string, by path) (s measure.Sample, err error) {
	defer try.Catch(&err)
	leader := try.Get(c.settled(ctx))
	replica := c.members[(slices.Index(c.members, leader)+1)%len(c.members)]
	try.Do(c.isServing(ctx, by, replica))
	during, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	count, stopCounting := try.Get2(replica.countConnections(postgresPort))
	defer stopCounting()
	s.Values = map[string]float64{"last": 0, "given": 0, "errors": 0}
	go func() {
		defer close(done)
		defer stop()
		if err = measure.Pause(ctx, time.Second); err != nil {
			return
		}
		var undo func()
		if undo, err = c.hurt(ctx, what, leader, replica); err != nil {
			return
		}
		defer undo()
		err = countAfter(ctx, count, s.Values)
	}()
	servers := read(during, atProxy(by.port))
	<-done
	try.Do(err)
	for _, server := range servers {
		if server == "" {
			s.Values["errors"]++
		}
	}
	s.Values["readers"] = float64(len(servers))
	return s, nil
}

// countAfter notes when the last connection was counted, and how many came after the first second.
func countAfter(ctx context.Context, count func() (int, error), values map[string]float64) error {
	const step = 50 * time.Millisecond
	began, before, early := time.Now(), -1, 0
	for time.Since(began) < watched {
		n, err := count()
		if err != nil {
			return err
		}
		if before >= 0 && n > before {
			values["last"] = time.Since(began).Seconds()
		}
		if time.Since(began) <= time.Second {
			early = n
		}
		before = n
		if err := measure.Pause(ctx, step); err != nil {
			return err
		}
	}
	values["given"] = float64(before - early)
	return nil
}

// isServing waits until a replica has had a reader: checks that it failed in the round before have to pass.
func (c *cluster) isServing(ctx context.Context, by path, replica *member) error {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		some, stop := context.WithTimeout(limited, time.Second)
		servers := read(some, atProxy(by.port))
		stop()
		if slices.Contains(servers, replica.ip) {
			return nil
		}
		if limited.Err() != nil {
			return errors.New("the replica serves nobody")
		}
	}
}

// hurt freezes a replica, or what receives on it. It returns what mends it, once no client should be given to it: when it is
// frozen, or when its record says that it is too far behind.
func (c *cluster) hurt(ctx context.Context, what string, leader, replica *member) (mend func(), err error) {
	defer try.Catch(&err)
	if what == frozen {
		pids := append(try.Get(replica.postgres()), try.Get(measure.Family(replica.patroni.PID()))...)
		signal(syscall.SIGSTOP, pids...)
		return func() { signal(syscall.SIGCONT, pids...) }, nil
	}
	s := try.Get(connect(fmt.Sprintf("%s:%d", replica.ip, postgresPort), patience))
	defer s.close()
	receiver := try.Get(strconv.Atoi(try.Get(s.ask("SELECT pid FROM pg_stat_wal_receiver", patience))))
	p := try.Get(connect(fmt.Sprintf("%s:%d", leader.ip, postgresPort), patience))
	defer p.close()
	signal(syscall.SIGSTOP, receiver)
	mend = func() { signal(syscall.SIGCONT, receiver) }
	if err := c.fallsBehind(ctx, p, replica); err != nil {
		mend()
		return nil, err
	}
	return mend, nil
}

// fallsBehind has the primary write more than a replica may be behind, and some more, until the record of the replica says so.
func (c *cluster) fallsBehind(ctx context.Context, primary *session, replica *member) error {
	write := func(bytes int) error {
		_, err := primary.ask(fmt.Sprintf("SELECT pg_logical_emit_message(false, 'lag', repeat('x', %d))", bytes), patience)
		return err
	}
	if err := write(4 * lagLimit); err != nil {
		return err
	}
	var l lagging
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err := write(1); err != nil {
			return err
		}
		if err := l.read(ctx, c.etcd, replica); err != nil || l.behind() > lagLimit {
			return err
		}
		if err := measure.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the record of %s does not say within %v that it is behind", replica.name, patience)
}

// A lagging is how far a replica is behind, as its record and the key status say.
type lagging struct {
	status, member, before position
}

// A position is one in the log of PostgreSQL, and the revision of the value that says it.
type position struct{ at, revision int64 }

func (l *lagging) read(ctx context.Context, etcd *clientv3.Client, replica *member) error {
	got, err := etcd.Txn(ctx).Then(clientv3.OpGet("/service/pg/status"), clientv3.OpGet("/service/pg/members/"+replica.name)).Commit()
	if err != nil {
		return err
	}
	var status, member position
	for i, p := range [...]*position{&status, &member} {
		for _, kv := range got.Responses[i].GetResponseRange().Kvs {
			var says struct {
				Optime   int64
				Location int64 `json:"xlog_location"`
			}
			if err := json.Unmarshal(kv.Value, &says); err != nil {
				return fmt.Errorf("key %s: %w", kv.Key, err)
			}
			*p = position{says.Optime + says.Location, kv.ModRevision} // each has one of the two
		}
	}
	if status.revision != l.status.revision {
		l.before = l.status
	}
	l.status, l.member = status, member
	return nil
}

// behind compares a record that is older than status with what status said before.
func (l *lagging) behind() int64 {
	switch {
	case l.member.at == 0:
		return 0 // it is not known yet
	case l.member.revision > l.status.revision:
		return l.status.at - l.member.at
	}
	return l.before.at - l.member.at
}
