package docs

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/internal/process"
	"kubeproxy/proxy/proxytest"
)

// A seccompProfile is what Docker, containerd and CRI-O read of a file like kube-proxy-classic.seccomp.json.
type seccompProfile struct {
	DefaultAction   string        `json:"defaultAction"`
	DefaultErrnoRet int           `json:"defaultErrnoRet"`
	Architectures   []string      `json:"architectures"`
	Syscalls        []seccompRule `json:"syscalls"`
}

type seccompRule struct {
	Comment string   `json:"comment"`
	Names   []string `json:"names"`
	Action  string   `json:"action"`
	Args    []struct {
		Index    uint   `json:"index"`
		Value    uint32 `json:"value"`
		ValueTwo uint32 `json:"valueTwo"`
		Op       string `json:"op"`
	} `json:"args"`
}

// loadSeccompProfile reads the profile strictly: a field that this test does not know is an error.
func loadSeccompProfile(t *testing.T) (p seccompProfile) {
	t.Helper()
	text, err := os.ReadFile("kube-proxy-classic.seccomp.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTheSeccompProfileAllowsKnownCallsOnly: each name is a system call of Linux, allowed once, with the reason why. What is not named is refused with EPERM.
func TestTheSeccompProfileAllowsKnownCallsOnly(t *testing.T) {
	t.Parallel()
	p, numbers := loadSeccompProfile(t), callNumbers(t, "amd64")
	if p.DefaultAction != "SCMP_ACT_ERRNO" || p.DefaultErrnoRet != int(unix.EPERM) {
		t.Errorf("other calls: %s %d; want SCMP_ACT_ERRNO %d", p.DefaultAction, p.DefaultErrnoRet, unix.EPERM)
	}
	if want := []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"}; !slices.Equal(p.Architectures, want) {
		t.Errorf("architectures %q; want %q, those of make dist", p.Architectures, want)
	}
	var all []string
	for _, rule := range p.Syscalls {
		if rule.Action != "SCMP_ACT_ALLOW" || rule.Comment == "" || !slices.IsSorted(rule.Names) {
			t.Errorf("the rule of %q has action %s and comment %q, or is not sorted; want SCMP_ACT_ALLOW, a reason and an order", rule.Names, rule.Action, rule.Comment)
		}
		for _, name := range rule.Names {
			if _, ok := numbers[name]; !ok {
				t.Errorf("%q is no system call", name)
			}
			if name != "socket" {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	for i, name := range all {
		if i > 0 && all[i-1] == name {
			t.Errorf("%s is allowed twice", name)
		}
	}
	for _, dangerous := range []string{"bpf", "clone3", "init_module", "keyctl", "mount", "mprotect", "perf_event_open", "process_vm_readv", "ptrace", "setns", "unshare", "userfaultfd"} {
		if slices.Contains(all, dangerous) {
			t.Errorf("%s is allowed", dangerous)
		}
	}
}

// callNumbers returns the number of each system call of an architecture, from the constants of x/sys/unix.
func callNumbers(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+arch+".go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := make(map[string]uint32)
	for _, m := range regexp.MustCompile(`(?m)^\tSYS_(\w+) += (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		numbers[strings.ToLower(m[1])] = uint32(n)
	}
	if n, ok := numbers["fstatat"]; ok { // its name on arm64
		numbers["newfstatat"] = n
	}
	return numbers
}

// filter compiles the profile for this architecture. A call that it does not allow raises SIGSYS: a program in Go then prints the stack that has led there, and ends.
// So a refusal that the program would put up with is found, too.
func (p seccompProfile) filter(t *testing.T) (all []unix.SockFilter) {
	t.Helper()
	const number, arguments = 0, 16 // offsets in struct seccomp_data
	load := func(offset uint32) {
		all = append(all, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
	}
	unless := func(value uint32, skip uint8) { // skips so many instructions if the accumulator is another
		all = append(all, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip})
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	numbers := callNumbers(t, runtime.GOARCH)
	load(number)
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			n, ok := numbers[name]
			switch {
			case !ok: // of another architecture
			case len(rule.Args) == 0:
				unless(n, 1)
				all = append(all, allow)
			case len(rule.Args) == 1 && rule.Args[0].Op == "SCMP_CMP_EQ":
				unless(n, 4)
				load(arguments + 8*uint32(rule.Args[0].Index))
				unless(rule.Args[0].Value, 1)
				all = append(all, allow)
				load(number)
			case len(rule.Args) == 1 && rule.Args[0].Op == "SCMP_CMP_MASKED_EQ":
				unless(n, 5)
				load(arguments + 8*uint32(rule.Args[0].Index))
				all = append(all, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: rule.Args[0].Value})
				unless(rule.Args[0].ValueTwo, 1)
				all = append(all, allow)
				load(number)
			default:
				t.Fatalf("%s has arguments %+v, which this test cannot compile", name, rule.Args)
			}
		}
	}
	return append(all, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRAP})
}

const (
	confinedEnv = "DOCS_CONFINED" // names the file with the filter under which a process is to become the program of its arguments
	shellEnv    = "DOCS_SHELL"    // names what /bin/sh is then; may be empty
)

func TestMain(m *testing.M) {
	if file := os.Getenv(confinedEnv); file != "" {
		fmt.Fprintln(os.Stderr, "become the program:", becomeConfined(file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// becomeConfined returns only if it fails. A filter is a thread's, and execve keeps that of the thread that calls it.
func becomeConfined(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filter := unsafe.Slice((*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(text))), len(text)/int(unsafe.Sizeof(unix.SockFilter{})))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	os.Unsetenv(confinedEnv)
	runtime.LockOSThread()
	if shell := os.Getenv(shellEnv); shell != "" { // in a mount namespace of its own
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount(shell, "/bin/sh", "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// A cell starts programs under the profile, in a directory of its own.
type cell struct {
	t            *testing.T
	dir, program string
	filter       string // the file
	shell        string // what /bin/sh is for the programs; empty: as it is
	started      int
}

func newCell(t *testing.T, p seccompProfile) *cell {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") // t.TempDir's are too long for a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &cell{t: t, dir: dir, filter: filepath.Join(dir, "filter")}
	c.program, err = process.KubeProxyBinary()
	must(t, err)
	filter := p.filter(t)
	must(t, os.WriteFile(c.filter, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(filter))), len(filter)*int(unsafe.Sizeof(filter[0]))), 0o600))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command is kube-proxy under the profile.
func (c *cell) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), os.Args[0], append([]string{c.program}, args...)...)
	cmd.Env = append(os.Environ(), confinedEnv+"="+c.filter, shellEnv+"="+c.shell)
	if c.shell != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 { // a user namespace makes us root in it
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
	}
	return cmd
}

// start starts kube-proxy, and waits for what it says. Unless it is gone, it ends with 0 when the test ends.
func (c *cell) start(said string, args ...string) *process.Process {
	c.t.Helper()
	c.started++
	output := filepath.Join(c.dir, fmt.Sprint("log", c.started))
	log, err := os.Create(output)
	must(c.t, err)
	defer log.Close()
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Run("kube-proxy", cmd)
	must(c.t, err)
	p.Output = output
	c.t.Cleanup(p.Stop)
	if err := p.Await(proxytest.Patience, func() bool { return p.Said(said) }); err != nil {
		c.t.Fatalf("%q: %v:\n%s", said, err, p.LastWords())
	}
	return p
}

// says runs a command of kube-proxy to its end.
func (c *cell) says(want string, args ...string) {
	c.t.Helper()
	if out, err := c.command(args...).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		c.t.Errorf("%q: %v; it said %s; want %q", args, err, out, want)
	}
}

// over checks that a process has ended, and that it ended well.
func (c *cell) over(p *process.Process) {
	c.t.Helper()
	<-p.Exited()
	if !p.State().Success() {
		c.t.Errorf("it ended with %v:\n%s", p.State(), p.LastWords())
	}
}

// record writes a record of a registry of files.
func (c *cell) record(key, format string, args ...any) {
	c.t.Helper()
	file := filepath.Join(c.dir, "records/registry/services", key)
	must(c.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(c.t, os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o644))
}

// services writes the records of a service for each protocol, at one port.
func (c *cell) services(port uint16, tcp, udp any) {
	c.t.Helper()
	c.record("specs/tcp", `{"kind":"Service","apiVersion":"v1beta1","id":"tcp","port":%d}`, port)
	c.record("specs/udp", `{"kind":"Service","apiVersion":"v1beta1","id":"udp","port":%d,"protocol":"UDP"}`, port)
	c.record("endpoints/tcp", `{"kind":"Endpoints","apiVersion":"v1beta1","id":"tcp","endpoints":[%q]}`, tcp)
	c.record("endpoints/udp", `{"kind":"Endpoints","apiVersion":"v1beta1","id":"udp","endpoints":[%q]}`, udp)
}

func page(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s", url, response.Status, text)
	}
	return string(text)
}

// TestUnderTheSeccompProfileEachEngineServes: clients of TCP and UDP, a profile of the processor, SIGHUP, a take-over by SIGUSR2, and the commands for a running node.
func TestUnderTheSeccompProfileEachEngineServes(t *testing.T) {
	t.Parallel() // it waits, and the others compute
	profile := loadSeccompProfile(t)
	for _, engine := range []string{"portable", "epoll", "ring"} {
		t.Run(engine, func(t *testing.T) {
			c := newCell(t, profile)
			ports, err := process.FreePorts(1024, 32767, 2)
			must(t, err)
			c.services(ports, proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr.String(), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr.String())
			pages := fmt.Sprintf("127.0.0.1:%d", ports+1)
			must(t, os.Mkdir(filepath.Join(c.dir, "run"), 0o700))
			control := "-control=" + filepath.Join(c.dir, "run/control")
			p := c.start("the first state is in force", "-engine="+engine, "-registry_dir="+filepath.Join(c.dir, "records"), "-bind_address=127.0.0.1", "-check_endpoints", "-profiling",
				"-healthz_bind_address=", "-metrics_bind_address="+pages, "-takeover="+filepath.Join(c.dir, "run/takeover"), control,
				"-state_dir="+c.dir, "-connection_log="+filepath.Join(c.dir, "connections.log"))
			clients := func() {
				t.Helper()
				talk := proxytest.TalkTo(t, proxytest.On(ports))
				talk.MustSay(t, "hello")
				must(t, talk.Conn.CloseWrite())
				must(t, proxytest.Discard(talk.Conn))
				_, err := proxytest.DialUDP(t, proxytest.On(ports)).Exchange([]byte("hello"))
				must(t, err)
			}
			clients()
			page(t, "http://"+pages+"/debug/pprof/profile?seconds=1")
			p.Signal(syscall.SIGHUP)
			held := proxytest.TalkTo(t, proxytest.On(ports))
			held.MustSay(t, "before")
			if engine == "portable" { // which would drain
				held.Conn.Close()
			}
			p.Signal(syscall.SIGUSR2)
			c.over(p)
			clients()
			if engine != "portable" {
				held.MustSay(t, "after")
			}
			proxytest.Eventually(t, func() bool { // the successor serves clients first
				_, err := os.Stat(filepath.Join(c.dir, "run/control"))
				return err == nil
			}, "the control socket of the successor")
			c.says("All is well", "status", control)
			c.says("default/udp", "sessions", control)
			c.says("", "check", filepath.Join(c.dir, "records"))
		})
	}
}

// build builds a program without cgo, which needs no more calls than kube-proxy.
func (c *cell) build(name string, command ...string) (program string) {
	c.t.Helper()
	program = filepath.Join(c.dir, name)
	cmd := exec.CommandContext(c.t.Context(), "go", slices.Insert(command, 1, "-o", program)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return program
}

// TestUnderTheSeccompProfileASuccessorKeepsItsSocket: the tests of the sockets of -takeover and -control pass.
func TestUnderTheSeccompProfileASuccessorKeepsItsSocket(t *testing.T) {
	t.Parallel()
	c := newCell(t, loadSeccompProfile(t))
	c.program = c.build("ownersocket.test", "test", "-c", "kubeproxy/internal/ownersocket")
	c.says("PASS", "-test.run=TestASocketIsItsOwnersAndThatOfTheLastWhoListened")
}

// TestUnderTheSeccompProfileAnInstanceRegisters: with etcd by TLS, kube-proxy register keeps a command's instance that a static /bin/sh checks, and a node
// serves it.
func TestUnderTheSeccompProfileAnInstanceRegisters(t *testing.T) {
	t.Parallel()
	c := newCell(t, loadSeccompProfile(t))
	ca := etcdtest.NewCA(t)
	cert, key := ca.Issue(t, "etcd")
	etcd := etcdtest.StartProcess(t, "--cert-file="+cert, "--key-file="+key, "--client-cert-auth", "--trusted-ca-file="+ca.File)
	cert, key = ca.Issue(t, "kube-proxy")
	flags := []string{"-etcd_servers=" + etcd.URL(), "-etcd_cafile=" + ca.File, "-etcd_certfile=" + cert, "-etcd_keyfile=" + key}
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	client := etcd.Client(t, func(c *clientv3.Config) { // which is on this machine
		c.TLS = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	})
	port, err := process.FreePorts(1024, 32767, 1)
	must(t, err)
	_, err = client.Put(t.Context(), "/registry/services/specs/web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"web","port":%d}`, port))
	must(t, err)
	node := c.start("the first state is in force", slices.Concat(flags, []string{"-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address="})...)
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr.IP
	must(t, os.MkdirAll(filepath.Join(c.dir, "registry/services"), 0o700))
	source := filepath.Join(c.dir, "sh.go")
	must(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	c.shell = c.build("sh", "build", source)
	instance := c.start("the first state is in force", slices.Concat([]string{"register"}, flags, []string{"-service=web", "-address=127.0.0.1", fmt.Sprintf("-port=%d", endpoint.Port()), "-drain=0s", "-check=exec=true",
		"--", c.program, "-registry_dir=" + c.dir, "-healthz_bind_address=", "-metrics_bind_address="})...)
	proxytest.Eventually(t, func() bool {
		talk, err := proxytest.TryTalkTo(t, proxytest.On(port))
		if err != nil {
			return false
		}
		defer talk.Conn.Close()
		_, err = talk.Say("hello")
		return err == nil
	}, "no client of the instance is served")
	for _, p := range []*process.Process{instance, node} {
		must(t, syscall.Kill(p.PID(), syscall.SIGTERM)) // it alone: for the command, a second signal would be the one that ends it at once
		c.over(p)
	}
}

// TestUnderTheSeccompProfileTheKernelCarriesClients: nftables and the connection table by netlink.
func TestUnderTheSeccompProfileTheKernelCarriesClients(t *testing.T) {
	t.Parallel()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	c, peer := newCell(t, loadSeccompProfile(t)), proxytest.NewPeer(t)
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	var endpoint string
	peer.Do(t, func() error {
		endpoint = proxytest.ServeTCP(t, netip.AddrPortFrom(peer.There, 0).String(), proxytest.Chat("web")).Addr.String()
		return nil
	})
	c.services(8000, endpoint, endpoint)
	node := c.start("the first state is in force", "-kernel=auto", "-check_endpoints", "-registry_dir="+filepath.Join(c.dir, "records"), "-service_cidr=10.99.0.0/24", "-healthz_bind_address=", "-metrics_bind_address=127.0.0.1:10249")
	proxytest.Eventually(t, func() bool {
		return strings.Contains(page(t, "http://127.0.0.1:10249/metrics"), "kubeproxy_kernel_ports{reason=\"carried\"} 1")
	}, "no port is carried:\n%s", node.LastWords())
	node.Stop()
	c.over(node)
	c.says("nothing of a kube-proxy is in the kernel", "cleanup")
}
