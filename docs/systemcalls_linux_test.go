package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kubeproxy/internal/process"
	"kubeproxy/proxy/proxytest"
)

// TestSystemCallsComeFromWhereTheDocsSay follows a TCP connection and a datagram by strace, and compares the calls with system-calls.md:
// those of each table are made in its order, by the functions that it names.
func TestSystemCallsComeFromWhereTheDocsSay(t *testing.T) {
	t.Parallel() // it waits, and the others compute
	if out, err := exec.Command("strace", "-k", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("no strace that prints stacks and may trace: %v: %s", err, out)
	}
	text, err := os.ReadFile("system-calls.md")
	if err != nil {
		t.Fatal(err)
	}
	binary, tables := builtKubeProxy(t), 0
	for _, engine := range []string{"portable", "epoll"} {
		t.Run(engine, func(t *testing.T) {
			traced := traceClients(t, binary, engine)
			for section := range strings.SplitSeq(string(text), "\n## ") {
				title, body, _ := strings.Cut(section, "\n")
				if !strings.HasSuffix(title, ", "+engine+" engine") {
					continue
				}
				tables++
				left := traced
				for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\]\\(\\.\\./(\\S+)\\) \\((\\w+)\\) \\|$").FindAllStringSubmatch(body, -1) {
					call, in, function := row[1], path.Dir(row[2]), row[3]
					if !functions(t, row[2])[function] {
						t.Errorf("%s: %s declares no function %s", title, row[2], function)
					}
					from := regexp.MustCompile(`(?m)^kubeproxy/` + in + `\.(\(\*?\w+\)\.)?` + function + `\b`)
					for len(left) > 0 && (left[0].name != call || !from.MatchString(left[0].stack)) {
						left = left[1:]
					}
					if len(left) == 0 {
						t.Errorf("%s: after what stands before it, no %s is called in %s of %s", title, call, function, in)
						break
					}
					left = left[1:]
				}
			}
		})
	}
	if tables != 4 {
		t.Errorf("system-calls.md has %d tables; want 4", tables)
	}
}

// A systemCall is one that was traced, with the functions of ours that led to it, a line each.
type systemCall struct{ name, stack string }

// traceClients has a proxy with an engine carry a TCP connection and a datagram, and returns its calls.
func traceClients(t *testing.T, binary, engine string) []systemCall {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stream := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web"))
	datagrams := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	port, err := process.FreePorts(1024, 32767, 1)
	must(err)
	dir := t.TempDir()
	for _, record := range [][2]string{
		{"specs/tcp", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"tcp","port":%d}`, port)},
		{"specs/udp", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"udp","port":%d,"protocol":"UDP"}`, port)},
		{"endpoints/tcp", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"tcp","endpoints":[%q]}`, stream.Addr.String())},
		{"endpoints/udp", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"udp","endpoints":[%q]}`, datagrams.Addr.String())},
	} {
		file := filepath.Join(dir, "registry/services", record[0])
		must(os.MkdirAll(filepath.Dir(file), 0o755))
		must(os.WriteFile(file, []byte(record[1]), 0o644))
	}
	start := func(name, written string, command ...string) *process.Process {
		t.Helper()
		p, err := process.Start(dir, name, command...)
		must(err)
		t.Cleanup(p.Stop)
		must(p.Await(proxytest.Patience, func() bool { return p.Said(written) }))
		return p
	}
	proxy := start("kube-proxy", "the first state is in force",
		binary, "-engine="+engine, "-registry_dir="+dir, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=")
	trace := filepath.Join(dir, "trace")
	strace := start("strace", " attached", "strace", "-f", "-k", "-e", "signal=none", "-o", trace, "-p", strconv.Itoa(proxy.PID()),
		"-e", "trace=accept4,socket,connect,getsockopt,epoll_ctl,read,write,recvfrom,sendto,recvmsg,sendmsg,recvmmsg,sendmmsg,shutdown,close")

	talk := proxytest.TalkTo(t, proxytest.On(port))
	talk.MustSay(t, "first") // which may be there before the loop watches the sockets
	talk.MustSay(t, "second")
	must(talk.Conn.CloseWrite())
	must(proxytest.Discard(talk.Conn))
	_, err = proxytest.DialUDP(t, proxytest.On(port)).Exchange([]byte("world"))
	must(err)

	proxy.Stop()
	<-strace.Exited()
	text, err := os.ReadFile(trace)
	must(err)
	return systemCalls(string(text))
}

// systemCalls reads what strace wrote: a call, then its stack. One that waits is in two lines, of which the second has the stack.
func systemCalls(trace string) (all []systemCall) {
	begins := regexp.MustCompile(`^\d+ +(?:<\.\.\. )?(\w+)[( ]`)
	frame := regexp.MustCompile(`^ > [^(]*\((kubeproxy/.*)\+0x[0-9a-f]+\) `)
	for line := range strings.Lines(trace) {
		if m := frame.FindStringSubmatch(line); m != nil && len(all) > 0 {
			all[len(all)-1].stack += m[1] + "\n"
		} else if m := begins.FindStringSubmatch(line); m != nil {
			all = append(all, systemCall{name: m[1]})
		}
	}
	return all
}
