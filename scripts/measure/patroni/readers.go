//go:build linux

package patroni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	measure.Column("last", "until the last client that was given to it, ms", 1e3),
	measure.Column("given", "clients given to it, of those after the first second", 1),
	measure.Column("errors", "clients without an answer", 1),
	measure.Column("readers", "clients", 1),
}

var readerBars = []measure.Bar{{Key: "given"}}

var (
	byReplicas = path{"replicas", measure.Subject{Name: "members of the role replica, checks each 500 ms", Ours: true}, 5006}
	haReplicas = path{"haproxy-replicas", measure.Subject{Name: "haproxy, as Patroni documents it", Peer: true}, 5007}
)

const (
	lagLimit    = 1 << 20          // bytes, of the service of replicas
	readerLimit = 2 * time.Second  // for one reader's answer
	watched     = 10 * time.Second // how long readers begin after the event
)

// A reading is what became of one reader.
type reading struct {
	began  time.Time
	server string // "": no answer
}

// read begins a reader each 20 ms until ctx ends, and returns all of them.
func read(ctx context.Context, at string) (all []reading) {
	var mu sync.Mutex
	var readers sync.WaitGroup
	for measure.Pause(ctx, pause) == nil {
		readers.Go(func() {
			r := reading{began: time.Now()}
			if s, err := connect(at, readerLimit); err == nil {
				_ = s.conn.SetDeadline(r.began.Add(readerLimit))
				r.server, _ = s.ask("SELECT host(inet_server_addr())")
				s.close()
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
	readers.Wait()
	return all
}

// spoil has something happen to a replica, under readers that take a path.
func (c *cluster) spoil(ctx context.Context, what string, by path) (s measure.Sample, err error) {
	defer try.Catch(&err)
	leader := try.Get(c.settled(ctx))
	replica := c.members[(slices.Index(c.members, leader)+1)%len(c.members)]
	try.Do(c.isServing(ctx, by, replica))
	reading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var at time.Time
	go func() {
		defer close(done)
		defer stop()
		if err = measure.Pause(ctx, time.Second); err != nil {
			return
		}
		var undo func()
		if undo, at, err = c.hurt(ctx, what, leader, replica); err == nil {
			err = measure.Pause(ctx, watched)
			undo()
		}
	}()
	all := read(reading, atProxy(by.port))
	<-done
	try.Do(err)
	s.Values = map[string]float64{"last": 0, "given": 0, "errors": 0, "readers": float64(len(all))}
	for _, r := range all {
		if r.server == "" {
			s.Values["errors"]++
		}
		late := r.began.Sub(at)
		if late < 0 || r.server != replica.ip && (r.server != "" || what != frozen) {
			continue // one without an answer was given to the frozen one
		}
		s.Values["last"] = max(s.Values["last"], late.Seconds())
		if late > time.Second {
			s.Values["given"]++
		}
	}
	return s, nil
}

// isServing waits until a replica has had a reader: checks that it failed in the round before have to pass.
func (c *cluster) isServing(ctx context.Context, by path, replica *member) error {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		some, stop := context.WithTimeout(limited, time.Second)
		all := read(some, atProxy(by.port))
		stop()
		if slices.ContainsFunc(all, func(r reading) bool { return r.server == replica.ip }) {
			return nil
		}
		if limited.Err() != nil {
			return errors.New("the replica serves nobody")
		}
	}
}

// hurt freezes a replica, or what receives on it. It returns what mends it, and the moment from which no client should be given to it: when it was
// frozen, or when its record says that it is too far behind.
func (c *cluster) hurt(ctx context.Context, what string, leader, replica *member) (mend func(), at time.Time, err error) {
	defer try.Catch(&err)
	if what == frozen {
		pids := append(try.Get(replica.postgres()), try.Get(measure.Family(replica.patroni.PID()))...)
		signal(syscall.SIGSTOP, pids...)
		return func() { signal(syscall.SIGCONT, pids...) }, time.Now(), nil
	}
	told := c.etcd.Watch(ctx, "/service/pg/", clientv3.WithPrefix())
	s := try.Get(connect(fmt.Sprintf("%s:%d", replica.ip, postgresPort), patience))
	defer s.close()
	receiver := try.Get(strconv.Atoi(try.Get(s.ask("SELECT pid FROM pg_stat_wal_receiver"))))
	signal(syscall.SIGSTOP, receiver)
	mend = func() { signal(syscall.SIGCONT, receiver) }
	defer func() {
		if err != nil {
			mend()
		}
	}()
	p := try.Get(connect(fmt.Sprintf("%s:%d", leader.ip, postgresPort), patience))
	defer p.close()
	try.Get(p.ask("SELECT pg_logical_emit_message(false, 'lag', repeat('x', 4194304))"))
	var written, received int64
	for r := range told {
		for _, ev := range r.Events {
			switch name, _ := strings.CutPrefix(string(ev.Kv.Key), "/service/pg/"); name {
			case "status":
				var status struct{ Optime int64 }
				if json.Unmarshal(ev.Kv.Value, &status) == nil {
					written = status.Optime
				}
			case "members/" + replica.name:
				var record struct {
					Location int64 `json:"xlog_location"`
				}
				if json.Unmarshal(ev.Kv.Value, &record) == nil {
					received = record.Location
				}
			}
		}
		if received > 0 && written-received > lagLimit {
			return mend, time.Now(), nil
		}
	}
	return mend, at, context.Cause(ctx)
}

func signal(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}
