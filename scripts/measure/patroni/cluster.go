//go:build linux

package patroni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

const (
	postgresPort = 5432
	restPort     = 8008
	leaderKey    = "/service/pg/leader"
)

// A cluster is three members that agree on a primary by etcd.
type cluster struct {
	*measure.Site
	options
	dir     string // of the user postgres
	etcd    *clientv3.Client
	server  *process.Etcd
	etcdURL string
	members []*member
}

// A member is a Patroni and its PostgreSQL, on a host of its own.
type member struct {
	*host
	data    string
	patroni *process.Process
}

// configuration is that of a member, as Patroni's manual has it. Everybody may connect: the network is that of the measurement alone.
const configuration = `
scope: pg
namespace: /service/
name: %[1]s
restapi: {listen: "%[2]s:8008", connect_address: "%[2]s:8008"}
etcd3: {host: "%[3]s"}
bootstrap:
  dcs: {ttl: %[6]d, loop_wait: %[7]d, retry_timeout: %[8]d, postgresql: {use_pg_rewind: true, parameters: {max_connections: 50}}}
  initdb: [encoding: UTF8, data-checksums]
postgresql:
  listen: %[2]s:5432
  connect_address: %[2]s:5432
  data_dir: %[4]s/%[1]s
  pgpass: %[4]s/%[1]s.pgpass
  bin_dir: %[5]s
  authentication: {superuser: {username: postgres}, replication: {username: replicator}, rewind: {username: rewind}}
  pg_hba: ["local all all trust", "host all all 0.0.0.0/0 trust", "host replication all 0.0.0.0/0 trust"]
  parameters: {unix_socket_directories: '', shared_buffers: 32MB}
`

func startCluster(ctx context.Context, site *measure.Site, server *process.Etcd, o options) (c *cluster, err error) {
	c = &cluster{Site: site, options: o, server: server, etcdURL: server.URL()}
	if c.etcd, err = measure.NewEtcdClient(c.etcdURL); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	defer try.Catch(&err) // after the above, which asks for err, and so before it at the end
	postgres := try.Get(user.Lookup("postgres"))
	c.dir = try.Get(os.MkdirTemp("", "patroni-"))
	try.Do(os.Chown(c.dir, try.Get(strconv.Atoi(postgres.Uid)), try.Get(strconv.Atoi(postgres.Gid))))
	programs := try.Get(filepath.Glob("/usr/lib/postgresql/*/bin"))
	if len(programs) == 0 {
		return c, errors.New("no PostgreSQL in /usr/lib/postgresql")
	}
	for i := range 3 {
		m := &member{host: try.Get(startHost(site.Group, fmt.Sprint("m", i+1), fmt.Sprint("10.98.70.", i+1)))}
		m.data = filepath.Join(c.dir, m.name)
		c.members = append(c.members, m)
		text := fmt.Sprintf(configuration, m.name, m.ip, strings.TrimPrefix(c.etcdURL, "http://"), c.dir, programs[len(programs)-1], o.ttl, o.loopWait, max(o.loopWait, 2))
		try.Do(os.WriteFile(m.data+".yml", []byte(text), 0o644))
		try.Do(c.start(m))
	}
	leader := try.Get(c.settled(ctx))
	s := try.Get(connect(fmt.Sprintf("%s:%d", leader.ip, postgresPort), patience))
	defer s.close()
	try.Get(s.ask("CREATE TABLE writes (id bigserial PRIMARY KEY)", patience))
	return c, nil
}

// start starts a member, as the user postgres.
func (c *cluster) start(m *member) (err error) {
	m.patroni, err = c.Start("patroni-"+m.name, append([]string{"nsenter"}, m.enter("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "env", "HOME="+c.dir, "patroni", m.data+".yml")...)...)
	return err
}

// end ends all members. A PostgreSQL does not end with its Patroni if that is killed.
func (c *cluster) end() {
	for _, m := range c.members {
		m.patroni.Stop()
		m.killPostgres()
	}
	c.etcd.Close()
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// postgres returns the processes of a member's PostgreSQL.
func (m *member) postgres() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(m.data, "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid < 2 {
		return nil, fmt.Errorf("postmaster.pid says %q", first)
	}
	return measure.Family(pid)
}

// killPostgres kills the PostgreSQL of a member, if there is one.
func (m *member) killPostgres() {
	if pids, err := m.postgres(); err == nil {
		signal(syscall.SIGKILL, pids...)
	}
}

func signal(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

func (c *cluster) member(name string) *member {
	return c.members[slices.IndexFunc(c.members, func(m *member) bool { return m.name == name })]
}

// tooLong is how long a member may take to come back. Patroni waits without end for one whose PostgreSQL has more of the old timeline than the
// new primary: it starts up, and is never asked whether it has to be rewound. An operator has such a member copied anew.
const tooLong = 20 * time.Second

// settled waits until there is a leader and the others follow it, and returns the leader.
func (c *cluster) settled(ctx context.Context) (*member, error) {
	for due := time.Now().Add(tooLong); ; {
		var state struct {
			Members []struct{ Name, Role, State string }
		}
		var leader *member
		well := 0
		for _, m := range c.members {
			if ask(ctx, m, "GET", "/cluster", "", &state) != nil {
				continue
			}
			for _, is := range state.Members {
				switch {
				case is.Role == "leader" && is.State == "running":
					leader = c.member(is.Name)
					well++
				case is.Role == "replica" && (is.State == "running" || is.State == "streaming"):
					well++
				}
			}
			break
		}
		if leader != nil && well == len(c.members) {
			return leader, measure.Pause(ctx, calm) // for checks that have to pass several times
		}
		if leader != nil && time.Now().After(due) {
			due = time.Now().Add(tooLong)
			for _, is := range state.Members {
				if is.Role == "replica" && is.State == "starting" {
					fmt.Printf("%s does not come back within %v, and is copied anew\n", is.Name, tooLong)
					_ = ask(ctx, c.member(is.Name), "POST", "/reinitialize", `{"force":true}`, nil) // what fails is asked again
				}
			}
		}
		if err := measure.Pause(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("of %d members %d are well: %w\n%s", len(c.members), well, err, c.members[0].patroni.LastWords())
		}
	}
}

// heard waits until each member has been through two whole turns since a change of the cluster's settings: in the first it reads them, in the second
// it goes by them.
func (c *cluster) heard(ctx context.Context, change time.Time) error {
	after := change.Unix() + int64(2*c.loopWait) + 1
	for _, m := range c.members {
		for {
			var state struct {
				Seen int64 `json:"dcs_last_seen"` // seconds
			}
			if err := ask(ctx, m, "GET", "/patroni", "", &state); err == nil && state.Seen >= after {
				break
			}
			if err := measure.Pause(ctx, 200*time.Millisecond); err != nil {
				return fmt.Errorf("%s has not read its settings from etcd: %w", m.name, err)
			}
		}
	}
	return nil
}

// ask asks a Patroni by its REST API.
func ask(ctx context.Context, m *member, method, path, body string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s%s", netip.MustParseAddrPort(fmt.Sprintf("%s:%d", m.ip, restPort)), path), strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// An elected is a new value of the leader's key.
type elected struct {
	name string
	at   time.Time
}

// awaitOther returns a channel that tells when the key names another member than old.
func (c *cluster) awaitOther(ctx context.Context, old *member) (<-chan elected, error) {
	watching := c.etcd.Watch(ctx, leaderKey, clientv3.WithCreatedNotify())
	if r := <-watching; r.Err() != nil || !r.Created {
		return nil, fmt.Errorf("watch %s: %w", leaderKey, r.Err())
	}
	other := make(chan elected, 1)
	go func() {
		for r := range watching {
			for _, ev := range r.Events {
				if name := string(ev.Kv.Value); name != "" && name != old.name {
					other <- elected{name, time.Now()}
					return
				}
			}
		}
	}()
	return other, nil
}

// cause has the primary change, and returns what makes the cluster whole again.
func (c *cluster) cause(ctx context.Context, what string, old *member) (undo func(), err error) {
	switch what {
	case switchover:
		go func() { _ = ask(ctx, old, "POST", "/switchover", fmt.Sprintf(`{"leader":%q}`, old.name), nil) }() // it answers when all is over
		return func() {}, nil
	case kill:
		old.patroni.Kill()
		old.killPostgres()
		return func() { _ = c.start(old) }, nil // what fails shows in settled
	case cut, partition:
		return old.isolate(what == cut, c.etcdURL[strings.LastIndexByte(c.etcdURL, ':')+1:])
	}
	old.patroni.Signal(syscall.SIGSTOP)
	return func() { old.patroni.Signal(syscall.SIGCONT) }, nil
}
