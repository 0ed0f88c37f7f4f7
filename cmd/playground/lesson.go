package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubeproxy/registry"
)

// A lesson is what the playground prints: what there is, and what to try. Each line that is indented
// by four blanks is a command, which works when it is pasted into a shell.
type lesson struct {
	etcd            string // its address
	web, echo, ping *service
	records         string // the directory of records in files
	more, filed     int    // ports that are still free
	operators       int    // the port where the proxy tells how it is
}

func (l *lesson) print(out io.Writer) {
	self := self(os.Args[0])
	flags := ""
	if l.etcd != defaultEtcd {
		flags = " -etcd=" + l.etcd
		fmt.Fprintf(out, "%s is taken: etcd listens on %s.\n", defaultEtcd, l.etcd)
	}
	for _, s := range l.services() {
		if s.instead != 0 {
			fmt.Fprintf(out, "%s port %d is taken: %s has %d.\n", s.network(), s.instead, s.name, s.port)
		}
	}
	fmt.Fprintf(out, "\nRunning: etcd on %s, three services, and the proxy that carries clients to them.\n", l.etcd)
	for _, s := range l.services() {
		fmt.Fprintf(out, "  %-5s %-5s %s  →  %s\n", s.name, s.kind, s.addr(), strings.Join(s.backendAddrs(), "  "))
	}

	fmt.Fprintf(out, "The status page, for a browser:\n  http://127.0.0.1:%d/\n", l.operators)
	fmt.Fprintf(out, "The metrics of the proxy, its state, and whether it is ready:\n")
	for _, page := range []string{"metrics", "configz", "readyz"} {
		fmt.Fprintf(out, "  http://127.0.0.1:%d/%s\n", l.operators, page)
	}

	fmt.Fprint(out, "\nTry, in another terminal. Each call is a new client, and gets the next backend:\n")
	command := func(format string, args ...any) { fmt.Fprintf(out, "    "+format+"\n", args...) }
	if _, err := exec.LookPath("curl"); err == nil {
		command("curl -s http://%s/", l.web.addr())
	}
	for _, s := range l.services() {
		command("%s call -n 6 %s %s", self, s.kind, s.addr())
	}

	fmt.Fprint(out, "\nThis is all that the proxy knows, two records for each service:\n")
	command("%s get%s %s", self, flags, registry.Prefix)

	fmt.Fprint(out, "\nLeave web only its first backend:\n")
	put := func(r record) { command("%s put%s %s '%s'", self, flags, r.key, r.value) }
	put(endpointsRecord(l.web.name, l.web.backendAddrs()[:1]))
	command("%s call -n 3 http %s", self, l.web.addr())

	fmt.Fprint(out, "\nOffer the backends of echo on one more port:\n")
	put(endpointsRecord("more", l.echo.backendAddrs()))
	put(specRecord("more", "tcp", l.more))
	command("%s call -n 3 tcp 127.0.0.1:%d", self, l.more)

	fmt.Fprint(out, "\nAnd close it again (after that a call is refused):\n")
	command("%s del%s %s", self, flags, registry.SpecsPrefix+"more")

	fmt.Fprintf(out, "\nThe proxy also reads records from files below %s. Offer the backends of web by two files:\n", l.records)
	file := func(key string) string { return shellWord(filepath.Join(l.records, key)) }
	write := func(r record) { command("echo '%s' >%s", r.value, file(r.key)) }
	write(endpointsRecord("filed", l.web.backendAddrs()))
	write(specRecord("filed", "tcp", l.filed))
	command("%s call -n 3 http 127.0.0.1:%d", self, l.filed)

	fmt.Fprint(out, "\nAnd close it again:\n")
	command("rm %s", file(registry.SpecsPrefix+"filed"))

	fmt.Fprint(out, "\nThe log of the proxy follows. Ctrl-C stops everything, and leaves nothing behind.\n\n")
}

func (l *lesson) services() []*service { return []*service{l.web, l.echo, l.ping} }

// self is how to call this program from a shell, as it was called this time.
func self(called string) string {
	if !strings.Contains(called, "/go-build") { // where go run keeps what it runs
		return shellWord(called)
	}
	if _, err := os.Stat("cmd/playground/main.go"); err == nil {
		return "go run ./cmd/playground"
	}
	return "go run kubeproxy/cmd/playground" // from anywhere else in the module
}

// shellWord quotes a path if a shell would not take it as it is.
func shellWord(path string) string {
	path = filepath.ToSlash(path)
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
