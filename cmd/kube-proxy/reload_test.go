//go:build unix

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
)

// write puts a file in the place of another one in one step.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// settingsShown waits until /configz shows these values of flags.
func settingsShown(t *testing.T, url string, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(programtest.Patience); ; {
		_, body := see(t, url+"/configz")
		body = strings.ReplaceAll(body, `": "`, `":"`)
		missing := ""
		for _, w := range want {
			if !strings.Contains(body, w) {
				missing = w
			}
		}
		switch {
		case missing == "":
			return
		case time.Now().After(deadline):
			t.Fatalf("/configz does not show %s:\n%.3000s", missing, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// SIGHUP applies what may change while the program runs, and says of each other flag what it needs. The command line goes on winning.
func TestSIGHUPReadsTheConfigurationAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "etcd_servers: [http://127.0.0.1:1]\nv: 1\nudp_timeout: 30s\nlog_dir: /a\n")
	addr, url := operatorsURL(t)
	p := programtest.Start(t, nil, "kube-proxy", "-config="+path, "-healthz_bind_address=", "-metrics_bind_address="+addr, "-drain_timeout=1s")
	settingsShown(t, url, `"v":"1"`, `"udp_timeout":"30s"`, `"etcd_servers":"http://127.0.0.1:1"`)

	write(t, path, "etcd_servers: [http://127.0.0.1:1]\nv: 2\nvmodule: proxier=3\nudp_timeout: 40s\ndrain_timeout: 7s\n")
	p.Signal(t, syscall.SIGHUP)
	p.Stderr.Wait(t, `SIGHUP: -v is now "2", and was "1"`)
	p.Stderr.Wait(t, `SIGHUP: -vmodule is now "proxier=3", and was ""`)
	p.Stderr.Wait(t, `SIGHUP: -udp_timeout="40s" needs a take-over (SIGUSR2) or a restart; it remains "30s"`)
	p.Stderr.Wait(t, `SIGHUP: -log_dir="" needs a take-over (SIGUSR2) or a restart; it remains "/a"`)
	settingsShown(t, url, `"v":"2"`, `"vmodule":"proxier=3"`, `"udp_timeout":"30s"`, `"drain_timeout":"1s"`)

	// What the file no longer has is what it is by default.
	write(t, path, "etcd_servers: [http://127.0.0.1:1]\nudp_timeout: 30s\nlog_dir: /a\n")
	p.Signal(t, syscall.SIGHUP)
	p.Stderr.Wait(t, `SIGHUP: -v is now "0", and was "2"`)
	p.Stderr.Wait(t, `SIGHUP: -vmodule is now "", and was "proxier=3"`)
	settingsShown(t, url, `"v":"0"`, `"vmodule":""`)
	p.Signal(t, syscall.SIGHUP)
	p.Stderr.Wait(t, "has nothing new")

	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d; want %d", code, exitDone)
	}
	if strings.Contains(p.Stderr.String(), "-drain_timeout=") {
		t.Errorf("the file has changed what the command line says:\n%s", p.Stderr)
	}
}

// A file that is wrong changes nothing, and has one line in the log.
func TestAWrongConfigurationAtSIGHUPChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	const good = "etcd_servers: [http://127.0.0.1:1]\nv: 1\n"
	write(t, path, good)
	addr, url := operatorsURL(t)
	p := programtest.Start(t, nil, "kube-proxy", "-config="+path, "-healthz_bind_address=", "-metrics_bind_address="+addr)
	settingsShown(t, url, `"v":"1"`)
	for _, tt := range []struct{ text, want string }{
		{"v: 3\nx: [", `yaml: line 2: `},
		{"etcd_servers: [http://127.0.0.1:1]\nv: 4\nudp_timout: 3s\n", "line 3: there is no flag -udp_timout; did you mean udp_timeout?; nothing has changed"},
		{"v: 5\nzzz_is_no_flag: 1\n", "line 2: there is no flag -zzz_is_no_flag; nothing has changed"},
		{"v: 6\n", "nothing to read services from: "},
		{"etcd_servers: [http://127.0.0.1:1]\nv: 7\ndial_timeout: 1h\n", "-dial_timeout (1h0m0s) is more than -dial_total_timeout (5s); nothing has changed"},
	} {
		write(t, path, tt.text)
		p.Signal(t, syscall.SIGHUP)
		p.Stderr.Wait(t, tt.want)
		settingsShown(t, url, `"v":"1"`)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGHUP)
	p.Stderr.Wait(t, "no such file or directory; nothing has changed")
	write(t, path, good) // nothing differs from it
	p.Signal(t, syscall.SIGHUP)
	p.Stderr.Wait(t, "has nothing new")
}

// What a file says goes to the log when it is read again.
func TestPasswordsInURLsAreNotRepeatedAtSIGHUP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "master: http://127.0.0.1:1\n")
	addr, url := operatorsURL(t)
	p := programtest.Start(t, nil, "kube-proxy", "-config="+path, "-healthz_bind_address=", "-metrics_bind_address="+addr)
	settingsShown(t, url, `"master":"http://127.0.0.1:1"`)
	for _, tt := range []struct{ text, want string }{
		{"master: https://scott:tiger@a:1", `-master: URL of the API server "https://…@a:1" holds a user: `},
		{"master: http://127.0.0.1:1\netcd_servers: [http://scott:tiger@b:1]", `-etcd_servers: etcd URL "http://…@b:1" holds a user: `},
		{"etcd_servers: 'http://scott:tiger@c:1,'", `invalid value "http://…@c:1," for flag -etcd_servers: `},
	} {
		write(t, path, tt.text+"\n")
		p.Signal(t, syscall.SIGHUP)
		p.Stderr.Wait(t, tt.want)
	}
	if log := p.Stderr.String(); strings.Contains(log, "tiger") {
		t.Errorf("the log has the password:\n%s", log)
	}
}

// The level of the log is what it was, although the values of a wrong file were set before the error was found.
func TestAWrongConfigurationLeavesTheLogLevel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	args := []string{"-config=" + path}
	write(t, path, "registry_dir: r\nv: 0\n")
	o := defaults()
	c := o.commandLine()
	if err := c.Parse(args); err != nil {
		t.Fatal(err)
	}
	r := newReloader(args, true, c.Flags)
	write(t, path, "registry_dir: r\ndial_timeout: 1h\nv: 1\nvmodule: nothing=1\n")
	r.reload()
	for name, want := range map[string]string{"v": "0", "vmodule": ""} {
		if got := flag.Lookup(name).Value.String(); got != want || r.settings()[name] != want {
			t.Errorf("-%s is %q, and said to be %q; want %q", name, got, r.settings()[name], want)
		}
	}
}
