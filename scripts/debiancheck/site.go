//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// The network is this program's own, so no other program has these ports.
const (
	serviceAddr = "127.0.0.1:8000"
	etcdAddr    = "127.0.0.1:2379" // as the unit says
	etcdPeer    = "127.0.0.1:2380"
)

// A site is a machine, and outside of it, on the same loopback, an etcd with one service, and its endpoint.
type site struct {
	*machine
	group process.Group
}

// newSite returns one that has not begun.
func newSite(verbose bool) *site { return &site{machine: newMachine(verbose)} }

// begin starts its parts. What has started ends with close, also after an error.
func (s *site) begin(root string) (err error) {
	defer try.Catch(&err)
	s.group.Dir = try.Get(os.MkdirTemp("", "debiancheck-"))
	endpoint := try.Get(net.Listen("tcp", "127.0.0.1:0"))
	s.group.OnStop(func() { endpoint.Close() })
	go echo(endpoint)

	etcd := &process.Etcd{Name: "etcd", Data: filepath.Join(s.group.Dir, "data"), Logs: s.group.Dir, Client: etcdAddr, Peer: etcdPeer}
	try.Do(etcd.Start())
	s.group.OnStop(etcd.Stop)
	try.Do(s.put(registry.EndpointsPrefix+"web", measure.EndpointsRecord("web", []netip.AddrPort{endpoint.Addr().(*net.TCPAddr).AddrPort()})))
	try.Do(s.put(registry.SpecsPrefix+"web", measure.ServiceRecord("web", "TCP", netip.MustParseAddrPort(serviceAddr).Port())))
	try.Do(s.boot(root, s.group.Dir))
	say("%s has booted %s", try.Get(s.run("sh", "-c", "systemctl --version | head -n 1")), filepath.Base(root))
	return nil
}

// put writes a record to etcd.
func (s *site) put(key, record string) error {
	client, err := measure.NewEtcdClient("http://" + etcdAddr)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = client.Put(ctx, key, record)
	return err
}

// close ends everything. It may be called again.
func (s *site) close() error { return errors.Join(s.machine.close(), s.group.Stop()) }

// say prints what is true.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// property asks systemd about the unit.
func (s *site) property(name string) (string, error) {
	return s.run("systemctl", "show", "--value", "--property="+name, "kube-proxy-classic.service")
}

// mainPID returns the main process of the unit, by its number in the machine, or 0.
func (s *site) mainPID() int {
	text, err := s.property("MainPID")
	pid, badly := strconv.Atoi(text)
	if err != nil || badly != nil {
		return 0
	}
	return pid
}

// refuses reports whether the port of the service is closed.
func refuses() bool {
	conn, err := net.Dial("tcp", serviceAddr)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// takesOver has another process take over, by a command, under a connection that is held and clients that come and go.
func (s *site) takesOver(command ...string) (err error) {
	defer try.Catch(&err)
	first := s.mainPID()
	h := try.Get(hold(serviceAddr))
	defer h.close()
	try.Get(h.goesOn())
	p := pressOn(serviceAddr)
	_, err = s.run(command...)
	if err == nil {
		err = await("systemd has another main process", func() bool { pid := s.mainPID(); return pid != 0 && pid != first })
	}
	if err == nil {
		err = await("the first process has ended", func() bool { return !exists(s.path(fmt.Sprintf("/proc/%d", first))) })
	}
	bytes, moved := h.goesOn()
	seen := p.end()
	try.Do(errors.Join(err, moved))
	if p.refused.Load()+p.cut.Load() > 0 || p.answered.Load() == 0 {
		return errors.New(seen)
	}
	say("%s: process %d took over from %d; the held connection has passed %d bytes, all right and in order; %s",
		strings.Join(command, " "), s.mainPID(), first, bytes, seen)
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
