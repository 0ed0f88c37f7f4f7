package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/config/etcdsource"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

func TestFlagsThatCannotBeDoneTogether(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "nothing to read services from: give -etcd_servers, -etcd_config, -registry_dir, -master or -kubeconfig (README.md shows how)"},
		{"-etcd_config= -registry_dir=", "nothing to read services from: give -etcd_servers, -etcd_config, -registry_dir, -master or -kubeconfig (README.md shows how)"},
		{"-etcd_servers=http://a:1 -etcd_config=f", "-etcd_servers and -etcd_config are mutually exclusive"},
		{"-etcd_servers=https://a:1 -etcd_certfile=f", "-etcd_certfile and -etcd_keyfile need each other"},
		{"-etcd_servers=https://a:1 -etcd_keyfile=f", "-etcd_certfile and -etcd_keyfile need each other"},
		{"-etcd_servers=http://a:1 -etcd_username=u", "-etcd_username and -etcd_password_file need each other"},
		{"-etcd_servers=http://a:1 -etcd_password_file=f", "-etcd_username and -etcd_password_file need each other"},
		{"-etcd_servers=https://a:1 -etcd_cafile=f -etcd_insecure_skip_tls_verify", "-etcd_cafile and -etcd_insecure_skip_tls_verify are mutually exclusive"},
		{"-etcd_servers=http://a:1 -etcd_cafile=f", "flags about TLS are given, but https is in none of the URLs of -etcd_servers"},
		{"-etcd_servers=a:1 -etcd_insecure_skip_tls_verify", "flags about TLS are given, but https is in none of the URLs of -etcd_servers"},
		{"-etcd_servers=http://a:1 -etcd_certfile=f -etcd_keyfile=f", "flags about TLS are given, but https is in none of the URLs of -etcd_servers"},
		{"-etcd_servers=http://a:1 -dial_timeout=6s", "-dial_timeout (6s) is more than -dial_total_timeout (5s)"},

		{"-etcd_servers=a:1 -max_connections=10 -max_connections_per_service=11", "-max_connections_per_service (11) is more than -max_connections (10)"},
		{"-etcd_servers=a:1 -max_udp_sessions=10 -max_udp_sessions_per_service=11", "-max_udp_sessions_per_service (11) is more than -max_udp_sessions (10)"},
		{"-etcd_servers=a:1 -metrics_bind_address= -profiling", "-profiling means nothing without -metrics_bind_address"},
		{"-etcd_servers=a:1 -metrics_bind_address= -page_actions=/f", "-page_actions means nothing without -metrics_bind_address"},
		{"-etcd_servers=a:1 -connection_log_starts", "-connection_log_starts means nothing without -connection_log"},
		{"-etcd_servers=a:1 -metrics_bind_address= -metrics_endpoints=web", "-metrics_endpoints means nothing without -metrics_bind_address or -metrics_only_bind_address"},
		{"-etcd_servers=a:1 -metrics_endpoints=web,team-a/db -metrics_endpoints=x", ""},
		{"-etcd_servers=a:1 -metrics_endpoints=a/b/c", `invalid value "a/b/c" for flag -metrics_endpoints: want services, such as web,team-a/db`},
		{"-etcd_servers=a:1 -metrics_bind_address= -metrics_endpoints", "-metrics_endpoints means nothing without -metrics_bind_address or -metrics_only_bind_address"},
		{"-etcd_servers=a:1 -metrics_bind_address= -metrics_only_bind_address=10.0.0.5:10250 -metrics_endpoints", ""},
		{"-etcd_servers=a:1 -metrics_only_bind_address=127.0.0.1:10249", "-metrics_only_bind_address and -metrics_bind_address are the same address"},
		{"-etcd_servers=a:1 -metrics_only_bind_address=0.0.0.0:10256", "-metrics_only_bind_address and -healthz_bind_address are the same address"},
		{"-etcd_servers=a:1 -metrics_bind_address= -healthz_bind_address= -config_max_age=1m", "-config_max_age means nothing without -healthz_bind_address or -metrics_bind_address"},

		{"-etcd_servers=a:1,b:2", ""},
		{"-etcd_servers=a:1 -max_connections_per_service=11 -max_udp_sessions_per_service=11", ""}, // of what turns out to fit
		{"-etcd_servers=a:1 -metrics_bind_address= -config_max_age=1m", ""},
		{"-etcd_servers=a:1 -healthz_bind_address= -metrics_bind_address=", ""},
		{"-etcd_config=f", ""},
		{"-registry_dir=d", ""},
		{"-etcd_config=f -registry_dir=d", ""},
		{"-etcd_config=f -etcd_cafile=f -etcd_username=u -etcd_password_file=f", ""}, // the file says whether there is https
		{"-etcd_servers=https://a:1 -etcd_cafile=f -etcd_certfile=f -etcd_keyfile=f", ""},
		{"-etcd_servers=https://a:1 -etcd_insecure_skip_tls_verify -etcd_certfile=f -etcd_keyfile=f", ""},
		{"-etcd_servers=http://a:1 -etcd_username=u -etcd_password_file=f", ""},
		{"-etcd_servers=http://a:1 -dial_timeout=6s -dial_total_timeout=6s", ""},
		{"-etcd_servers=http://a:1 -dial_total_timeout=2s", ""},
		{"-master=m", ""},
		{"-master=m -etcd_servers=: -etcd_config=f", ""}, // as in v0.4: with it nothing that is said of etcd counts
		{"-kubeconfig=f", ""},
		{"-kubeconfig=f -master=m", ""},
		{"-master=in-cluster -kubeconfig=f", "-master=in-cluster and -kubeconfig are mutually exclusive"},
		{"-master=m -client_key=f", "-client_certificate and -client_key need each other"},
		{"-master=m -certificate_authority=f -insecure_skip_tls_verify", "-certificate_authority and -insecure_skip_tls_verify are mutually exclusive"},
		{"-master=m -service_address=cluster -service_port=nodePort",
			"-service_address=cluster and -service_port=nodePort: with the former, services have their node ports at the node without the latter"},
		{"-master=m -service_address=all", ""},
		{"-version", ""},
		{"-version anything -goes", ""},
	} {
		t.Run(tt.args, func(t *testing.T) {
			if got := parseError(strings.Fields(tt.args)...); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestValuesThatFlagsRefuse(t *testing.T) {
	_, unknown := registry.ParseBalance("no-such")
	for _, tt := range []struct{ arg, want string }{
		{"-bind_address=fe80::1%eth0", `invalid value "fe80::1%eth0" for flag -bind_address: invalid IP address: 'fe80::1%eth0'`},
		{"-bind_address=10.0.0.0/8", `invalid value "10.0.0.0/8" for flag -bind_address: invalid IP address: '10.0.0.0/8'`},
		{"-bind-address= x ", `invalid value " x " for flag -bind_address: invalid IP address: ' x '`},
		{"-etcd_servers=http://a:1, ", `invalid value "http://a:1, " for flag -etcd_servers: value should not be an empty string`},
		{"-load_balance=no-such", `invalid value "no-such" for flag -load_balance: ` + unknown.Error()},
		{"-dial_timeout=0", `invalid value "0" for flag -dial_timeout: must be more than zero`},
		{"-service_port=nodeport", `invalid value "nodeport" for flag -service_port: must be port or nodePort`},
		{"-service_address=portal", `invalid value "portal" for flag -service_address: must be node, cluster or all`},
		{"-udp_timeout=-1s", `invalid value "-1s" for flag -udp_timeout: must not be negative`},
		{"-drain_timeout=-1s", `invalid value "-1s" for flag -drain_timeout: must not be negative`},
		{"-config_sync_period=5", `invalid value "5" for flag -config_sync_period: time: missing unit in duration "5"`},
		{"-v=1.5", `invalid value "1.5" for flag -v: invalid syntax`},
		{"-rr_random_start=2", `invalid boolean value "2" for -rr_random_start: invalid syntax`},
		{"-version=2", `invalid boolean value "2" for -version: invalid syntax`},
		{"-bogus=1", `flag provided but not defined: -bogus`},
		{"-q", `flag provided but not defined: -q`},
		{"-bo\ngus", `flag provided but not defined: -"bo\ngus"`},
		{"---v", `bad flag syntax: ---v`},
		{"-dial_timeout", `flag needs an argument: -dial_timeout`},
		{"-", `unexpected argument: -`},
		{"x\ny", `unexpected argument: "x\ny"`},

		{"-config_max_age=9s", `invalid value "9s" for flag -config_max_age: must be at least 10s`},
		{"-max_connections=-1", `invalid value "-1" for flag -max_connections: must not be negative`},
		{"-max_connections=1e3", `invalid value "1e3" for flag -max_connections: invalid syntax`},
		{"-max_udp_sessions=9999999999", `invalid value "9999999999" for flag -max_udp_sessions: value out of range`},
		{"-healthz_bind_address=:10256", `invalid value ":10256" for flag -healthz_bind_address: want an IP address with a port, such as 127.0.0.1:10256 or [::1]:10256, or nothing`},
		{"-metrics_bind_address=localhost:1", `invalid value "localhost:1" for flag -metrics_bind_address: want an IP address with a port, such as 127.0.0.1:10256 or [::1]:10256, or nothing`},
		{"-metrics_bind_address=127.0.0.1", `invalid value "127.0.0.1" for flag -metrics_bind_address: want an IP address with a port, such as 127.0.0.1:10256 or [::1]:10256, or nothing`},
		{"-etcd_version=4", `invalid value "4" for flag -etcd_version: must be auto, 2 or 3`},
		{"-allowed_ports=80,0", `invalid value "80,0" for flag -allowed_ports: want ports from 1 to 65535 and ranges of them, such as 80,8000-8999`},
		{"-allowed_ports=90-80", `invalid value "90-80" for flag -allowed_ports: the range 90-80 is the wrong way round`},
		{"-allowed_ports=", `invalid value "" for flag -allowed_ports: want ports from 1 to 65535 and ranges of them, such as 80,8000-8999`},
		{"-allowed_ports=team-a=", `invalid value "team-a=" for flag -allowed_ports: want ports from 1 to 65535 and ranges of them, such as 80,8000-8999`},
		{"-allowed_ports==80", `invalid value "=80" for flag -allowed_ports: want the name of a namespace before =, such as team-a=9000-9999`},
		{"-allowed_ports=team-a/web=80", `invalid value "team-a/web=80" for flag -allowed_ports: want the name of a namespace before =, such as team-a=9000-9999`},
		{"-allowed_endpoints=10.0.0.1/8", `invalid value "10.0.0.1/8" for flag -allowed_endpoints: 10.0.0.1/8 has bits beyond its length; the network is 10.0.0.0/8`},
		{"-allowed_endpoints=10.0.0.0/33", `invalid value "10.0.0.0/33" for flag -allowed_endpoints: want networks, such as 10.0.0.0/8,fd00::/8`},
		{"-allowed_endpoints=", `invalid value "" for flag -allowed_endpoints: want networks, such as 10.0.0.0/8,fd00::/8`},
		{"-on_removal=cut", `invalid value "cut" for flag -on_removal: want drain, close or close-after=TIME`},
		{"-on_removal=close-after=5", `invalid value "close-after=5" for flag -on_removal: want a time after close-after=, such as 30s`},
		{"-on_removal=close-after=-5s", `invalid value "close-after=-5s" for flag -on_removal: want a time after close-after=, such as 30s`},

		{"-config_max_age=0", ""},
		{"-healthz_bind_address= [::1]:0 ", ""},
		{"-drain_timeout=0", ""}, // cuts connections at once
		{"-bind_address= ::1 ", ""},
		{"--", ""}, // ends the flags, and nothing follows
	} {
		t.Run(tt.arg, func(t *testing.T) {
			if got := parseError("-etcd_servers=http://a:1", tt.arg); got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestTheFlagTakesEveryAlgorithm(t *testing.T) {
	for _, want := range registry.Balances() {
		o := defaults()
		if err := o.commandLine().Parse([]string{"-etcd_servers=http://a:1", "-load_balance=" + want.String()}); err != nil || o.proxy.Balance != want {
			t.Errorf("%v: the proxy is told %v, %v", want, o.proxy.Balance, err)
		}
	}
}

// TestURLsThatCannotWorkAreRefused: v0.4 tried them every two seconds, for ever (D3).
func TestURLsThatCannotWorkAreRefused(t *testing.T) {
	for _, url := range []string{"ftp://a:1", "http://", "http://a", "http://:1", "http://a:1/path", "http://a:port", "http://a:1,https://b:1"} {
		if got := parseError("-etcd_servers=" + url); !strings.HasPrefix(got, "-etcd_servers: ") {
			t.Errorf("%s: got %q, want an error", url, got)
		}
	}
}

func TestPasswordsInURLsAreRefusedAndNotRepeated(t *testing.T) {
	const etcd, master = "-etcd_servers=http://scott:tiger@a:1", "-master=https://scott:tiger@a:1"
	for _, args := range [][]string{
		{etcd},
		{master},
		{"-master=scott:tiger@a:1"},
		{"-master=http://a:1", etcd}, // ignored, and shown to operators
		{"-kubeconfig=file", etcd},
		{etcd + ","}, // no list
		{"-etcd_servers=http://a:1,http://scott:tiger@b:1,"},
		{"-etcd_servers=scott:tiger@a:1,"},
		{"-etcd_servers=http://a:1", "http://scott:tiger@b:1"}, // a blank in the place of a comma
	} {
		got := parseError(args...)
		if got == "" || strings.Contains(got, "scott") || strings.Contains(got, "tiger") {
			t.Errorf("%q: got %q", args, got)
		}
	}
	if got := parseError("-master=" + inCluster); got != "" {
		t.Errorf("got %q for the service account of a pod", got)
	}
}

// TestTheFirstBadFlagIsNamed: as in v0.4, flags are looked at from left to right.
func TestTheFirstBadFlagIsNamed(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-v=x -bogus", `invalid value "x" for flag -v: invalid syntax`},
		{"-bogus -v=x", "flag provided but not defined: -bogus"},
		{"-help -bogus", "pflag: help requested"},
		{"-bogus -help", "flag provided but not defined: -bogus"},
		{"-version -bogus", "flag provided but not defined: -bogus"},
	} {
		if got := parseError(strings.Fields(tt.args)...); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestLastValueOfAFlagWins(t *testing.T) {
	o := defaults()
	if err := o.commandLine().Parse(strings.Fields("-etcd_config=a -etcd_config b -udp_timeout=1s --udp-timeout 2s")); err != nil {
		t.Fatal(err)
	}
	if o.source.etcd.configFile != "b" || o.proxy.UDPTimeout != 2*time.Second {
		t.Errorf("got %s and %v, want b and 2s", o.source.etcd.configFile, o.proxy.UDPTimeout)
	}
}

// TestFlagsReachThePackagesTheyAreFor gives each of many flags a value of its own.
func TestFlagsReachThePackagesTheyAreFor(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("tiger\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := defaults()
	if err := o.commandLine().Parse([]string{
		"-etcd_servers=http://a:1,http://b:2", "-config_sync_period=1h", "-service_port=nodePort", "-etcd_username=scott", "-etcd_password_file=" + password,
		"-bind_address=10.0.0.1", "-dial_timeout=1ms", "-dial_total_timeout=2ms", "-half_closed_timeout=3ms", "-udp_timeout=4ms",
		"-tcp_keepalive=5ms", "-drain_timeout=6ms", "-on_removal=close-after=7ms",
		"-max_connections=22", "-max_connections_per_service=21", "-max_connections_per_client=20", "-idle_timeout=19s", "-max_dials_per_endpoint=23", "-max_udp_sessions=25", "-max_udp_sessions_per_service=24", "-max_new_udp_sessions=26", "-load_balance=source",
		"-check_endpoints", "-endpoint_check_interval=31s", "-endpoint_check_timeout=32s", "-endpoint_check_fall=33", "-endpoint_check_rise=34", "-endpoint_check_slow_start=35s",
		"-allowed_ports=80, 90-91", "-allowed_ports=100,team-a=9000-9999", "-allowed_ports= team-a=90,b=1", "-allowed_endpoints=10.0.0.0/8,fd00::1",
		"-proxy_protocol_from=192.0.2.0/24,192.0.2.1",
	}); err != nil {
		t.Fatal(err)
	}
	source, err := o.source.etcdConfig()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := source.ReadPassword(); err != nil || got != "tiger" {
		t.Errorf("ReadPassword returns %q, %v; want the file's first line", got, err)
	}
	source.ReadPassword = nil // functions do not compare
	if diff := cmp.Diff(etcdsource.Config{
		Endpoints: []string{"http://a:1", "http://b:2"}, SyncPeriod: time.Hour, Username: "scott", Password: "tiger",
		Decoder: decode.Decoder{NodePorts: true},
	}, source); diff != "" {
		t.Errorf("the source: want (-), got (+):\n%s", diff)
	}
	want := proxy.Defaults() // of flags that are not given
	want.BindAddress = netip.MustParseAddr("10.0.0.1")
	want.DialTimeout = time.Millisecond
	want.DialTotalTimeout = 2 * time.Millisecond
	want.HalfClosedTimeout = 3 * time.Millisecond
	want.UDPTimeout = 4 * time.Millisecond
	want.TCPKeepAlive = 5 * time.Millisecond
	want.MaxConnections, want.MaxConnectionsPerService, want.MaxConnectionsPerClient = 22, 21, 20
	want.IdleTimeout = 19 * time.Second
	want.MaxDialsPerEndpoint = 23
	want.MaxUDPSessions, want.MaxUDPSessionsPerService = 25, 24
	want.MaxNewUDPSessions = 26
	want.Balance = registry.SourceAddress
	want.Checks = checks.Settings{On: true, Interval: 31 * time.Second, Timeout: 32 * time.Second, Fall: 33, Rise: 34, SlowStart: 35 * time.Second}
	want.AllowedEndpoints = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128")}
	want.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.1/32")}
	want.OnRemoval = removal.Policy{Close: true, After: 7 * time.Millisecond}
	want.DrainTimeout = 6 * time.Millisecond
	want.AllowedPorts = []proxy.PortRange{{First: 80, Last: 80}, {First: 90, Last: 91}, {First: 100, Last: 100}}
	want.NamespacePorts = map[string][]proxy.PortRange{"team-a": {{First: 9000, Last: 9999}, {First: 90, Last: 90}}, "b": {{First: 1, Last: 1}}}
	if diff := cmp.Diff(want, o.proxyConfig(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("the proxy: want (-), got (+):\n%s", diff)
	}
}

func TestEndpointsAreCheckedEachSecondWhereTheKernelMayCarryThem(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"":             5 * time.Second,
		"-kernel=off":  5 * time.Second,
		"-kernel=auto": time.Second,
		"-kernel=auto -endpoint_check_interval=5s":  5 * time.Second,
		"-kernel=auto -endpoint_check_interval=7ms": 0, // refused
	} {
		o := defaults()
		if err := o.commandLine().Parse(append(strings.Fields(args), "-etcd_servers=http://a:1")); err != nil {
			if want != 0 {
				t.Errorf("%q: %v", args, err)
			}
			continue
		}
		if got := o.proxyConfig().Checks.Interval; got != want {
			t.Errorf("%q: endpoints are checked each %v; want %v", args, got, want)
		}
	}
}

// parseError reads a command line and gives the error's text, "" for none.
func parseError(args ...string) string {
	o := defaults()
	if err := o.commandLine().Parse(args); err != nil {
		return err.Error()
	}
	return ""
}
