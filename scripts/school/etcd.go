package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"kubeproxy/internal/process"
)

// etcd is records in an etcd of its own, which a trial starts. The school writes them by etcd's JSON gateway, as programs may read them.
type etcd struct {
	dir    string
	member *process.Etcd
	url    string // that the program is told: the member's, or one of a gateway before it
}

// etcdPath finds the etcd that make school builds beside bin/school, or the system's.
func etcdPath() (string, error) {
	own, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(own), "school-etcd")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", fmt.Errorf("stages over etcd need an etcd: make school builds bin/school-etcd: %w", err)
	}
	return path, nil
}

func newEtcd(path string) (*etcd, error) {
	dir, err := os.MkdirTemp("", "school-")
	if err != nil {
		return nil, err
	}
	e := &etcd{dir: dir}
	if e.member, err = process.NewEtcd("etcd", filepath.Join(dir, "data"), dir, lowPort, highPort); err == nil {
		e.member.Path = path
		err = e.member.Start()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	e.url = e.member.URL()
	return e, nil
}

func (e *etcd) flags() []string { return []string{"-etcd_servers=" + e.url} }

func (e *etcd) close() {
	e.member.Kill()
	os.RemoveAll(e.dir)
}

// A pair is a record as the gateway has it: key and value in base64.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

func pairOf(key, value string) pair {
	encode := base64.StdEncoding.EncodeToString
	return pair{encode([]byte("/registry/services/" + key)), encode([]byte(value))}
}

func (e *etcd) put(key, value string) error { return e.post("put", pairOf(key, value)) }
func (e *etcd) delete(key string) error     { return e.post("deleterange", pairOf(key, "")) }

// A transaction is records that are written in one step.
type transaction struct {
	Success []operation `json:"success"`
}

type operation struct {
	RequestPut pair `json:"requestPut"`
}

// specsOf writes the specs of services in one transaction.
func specsOf(services ...*service) (t transaction) {
	for _, s := range services {
		t.Success = append(t.Success, operation{pairOf("specs/"+s.name, specOf(s.name, s.port, "TCP"))})
	}
	return t
}

func (e *etcd) post(method string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Minute}
	response, err := client.Post(e.member.URL()+"/v3/kv/"+method, "application/json", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status says enough
		return fmt.Errorf("etcd: %s: %s: %q", method, response.Status, said)
	}
	return nil
}

func (e *etcd) byHand(method string, request any) string {
	body, _ := json.Marshal(request) // strings can always be encoded
	return "curl -d " + quoted(string(body)) + " " + e.member.URL() + "/v3/kv/" + method
}

func (e *etcd) putByHand(key, value string) string { return e.byHand("put", pairOf(key, value)) }
func (e *etcd) deleteByHand(key string) string     { return e.byHand("deleterange", pairOf(key, "")) }

// A gateway passes the program's bytes on to etcd. Before each of the first pieces that go to etcd it does something.
type gateway struct {
	listener net.Listener
	before   func() error // nil once it has been called often enough

	mu    sync.Mutex // guards the fields below; held while before runs
	left  int
	err   error // of before
	conns []net.Conn
}

// interpose has the program reach etcd by a gateway, which calls before n times at most.
func (e *etcd) interpose(port, n int, before func() error) (*gateway, error) {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return nil, err
	}
	g := &gateway{listener: l, before: before, left: n}
	e.url = "http://" + l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			go g.carry(conn, e.member.Client)
		}
	}()
	return g, nil
}

func (g *gateway) carry(conn net.Conn, to string) {
	defer conn.Close()
	member, err := net.Dial("tcp", to)
	if err != nil {
		return // the program tries again
	}
	defer member.Close()
	g.mu.Lock()
	g.conns = append(g.conns, conn, member)
	g.mu.Unlock()
	go func() {
		_, _ = io.Copy(conn, member) // ends with either connection
		conn.Close()
	}()
	for buf := make([]byte, 65536); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		g.interrupt()
		if _, err := member.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (g *gateway) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left == 0 || g.err != nil {
		return
	}
	g.left--
	g.err = g.before()
}

// interrupts returns how often before was called.
func (g *gateway) interrupts(most int) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return most - g.left, g.err
}

func (g *gateway) close() {
	g.listener.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range g.conns {
		conn.Close()
	}
}

// The judges of etcd: stages 16 to 18.

func judgeGap(t *trial) {
	const most = 40
	e := t.records.(*etcd)
	red := t.named("red")
	web := t.service("web", red.addr)
	late := make([]*service, most)
	for i := range late {
		late[i] = &service{t, fmt.Sprintf("late-%02d", i), t.port()}
		late[i].endpoints(red.addr)
	}
	next := 0 // guarded by the gateway's lock
	g, err := e.interpose(t.port(), most, func() error {
		s := late[next]
		next++
		return e.put("specs/"+s.name, specOf(s.name, s.port, "TCP"))
	})
	t.must(err)
	t.atEnd(g.close)
	t.say("your program reaches etcd at %s; whenever it has sent something there, a service appears before etcd gets it", e.url)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	for i := 0; ; i++ { // while its services appear, the program may go on sending
		n, err := g.interrupts(most)
		t.must(err)
		if i == n {
			break
		}
		t.answered(late[i].port, changeLimit, "red")
	}
}

func judgeSwap(t *trial) {
	e := t.records.(*etcd)
	red, green := t.named("red"), t.named("green")
	one, two := t.service("one", red.addr), t.service("two", green.addr)
	t.start(0)
	t.answered(one.port, startLimit, "red")
	t.answered(two.port, startLimit, "green")
	stop, noticed := make(chan struct{}), make(chan error, 2)
	for _, port := range []int{one.port, two.port} {
		go func() { noticed <- askUntil(stop, port) }()
	}
	for range 10 {
		one.port, two.port = two.port, one.port
		t.do(e.byHand("txn", specsOf(one, two)), "service one moves to port %d and service two to %d, in one transaction", one.port, two.port)
		t.must(e.post("txn", specsOf(one, two)))
		t.answered(one.port, changeLimit, "red")
		t.answered(two.port, changeLimit, "green")
	}
	close(stop)
	t.do(askByHand(one.port), "clients of both ports ask all the time, while the services swap them")
	for range 2 {
		if err := <-noticed; err != nil {
			t.fail("an answer for each client", "%v", err)
		}
	}
}

func judgeOutages(t *trial) {
	const limit = 20 * time.Second // from the return of etcd to the effect of a change
	e := t.records.(*etcd)
	red, green := t.named("red"), t.named("green")
	web := t.service("web", red.addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	stays := t.connects(web.port)

	t.do("kill -9 "+itoa(e.member.PID()), "etcd is killed")
	e.member.Kill()
	for range 5 {
		t.asks(web.port, "red")
	}
	t.do(e.startByHand(), "etcd starts again, with its data")
	t.must(e.member.Start())
	web.endpoints(green.addr)
	t.answered(web.port, limit, "green")

	t.do("kill -STOP "+itoa(e.member.PID()), "etcd is paused: connections to it stay open, and nothing answers")
	e.member.Pause()
	for range 5 {
		t.asks(web.port, "green")
	}
	t.do("kill -CONT "+itoa(e.member.PID()), "etcd goes on")
	e.member.Resume()
	web.endpoints(red.addr)
	t.answered(web.port, limit, "red")

	t.do("kill -9 "+itoa(e.member.PID())+"; rm -r "+e.member.Data, "etcd is killed, and its data are deleted")
	e.member.Kill()
	t.must(os.RemoveAll(e.member.Data))
	t.do(e.startByHand(), "etcd starts again: it is empty, and its revisions begin again")
	t.must(e.member.Start())
	old := web.port
	web.port = t.port()
	web.endpoints(green.addr)
	web.spec("TCP")
	t.answered(web.port, limit, "green")
	t.refused(old)
	t.echoes(stays, 1000, talkByHand(web.port))
}

// startByHand is the command that starts etcd again.
func (e *etcd) startByHand() string {
	return fmt.Sprintf("%s --data-dir=%s --listen-client-urls=%s --advertise-client-urls=%[3]s", e.member.Path, e.member.Data, e.member.URL())
}
