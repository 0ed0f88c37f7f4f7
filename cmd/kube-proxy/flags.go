package main

import (
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/operators"
	"kubeproxy/proxy"
)

// options is what the command line asks for. Its flags write to the fields that the parts of the program read, so no value is copied.
type options struct {
	version     versionValue
	logToStderr bool
	logFlush    time.Duration

	proxy       proxy.Config
	randomStart bool

	operators        operators.Config
	metricsEndpoints bool
	configMaxAge     time.Duration
	stateDir         string
	stateMaxAge      time.Duration
	connectionLog    string
	takeover         string

	source sourceOptions
}

// defaults is what an empty command line asks for.
func defaults() *options {
	return &options{
		logFlush:    5 * time.Second,
		proxy:       proxy.Defaults(),
		randomStart: true,
		operators:   operators.Config{Healthz: netip.AddrPortFrom(netip.IPv4Unspecified(), 10256), Metrics: netip.MustParseAddrPort("127.0.0.1:10249")},
		stateMaxAge: 24 * time.Hour,
		source:      sourceOptions{sync: 30 * time.Second, etcd: etcdOptions{version: etcdAuto}},
	}
}

// flagSet gives the flags that fill in o. v0.4's flags have their old names; of the others, those that later kube-proxies have too
// have the same name as there.
func (o *options) flagSet() *pflag.FlagSet {
	f := newFlagSet("kube-proxy", &o.version)
	o.source.addFlags(f)

	p := &o.proxy
	f.Var((*addressValue)(&p.BindAddress), "bind_address", "`address` that every listener binds to")
	f.Var((*engineValue)(&p.Engine), "engine", "`engine` that moves the bytes: "+strings.Join(proxy.KindNames(), ", ")+" (the best one for this system)")
	f.BoolVar(&o.randomStart, "rr_random_start", o.randomStart, "start each rotation at a random endpoint, not at the first one")
	f.Var((*balanceValue)(&p.Balance), "load_balance", "`algorithm` of services whose record names none: roundrobin, leastconn (of two endpoints the one with fewer clients) or source (by the client's address)")
	f.Var(positive(&p.DialTimeout), "dial_timeout", "time for one endpoint to accept a connection")
	f.Var(positive(&p.DialTotalTimeout), "dial_total_timeout", "time for all endpoints that are tried for one client")
	f.Var(positive(&p.HalfClosedTimeout), "half_closed_timeout", "silence allowed once one side of a TCP connection has finished")
	f.Var(positive(&p.UDPTimeout), "udp_timeout", "silence after which a UDP session ends")
	f.Var(positive(&p.TCPKeepAlive), "tcp_keepalive", "interval between keepalive probes; after three without an answer the connection is dead")
	f.Var(zeroOr(0, &p.DrainTimeout), "drain_timeout", "time for connections to finish after SIGTERM or SIGINT; 0 closes them at once")
	f.Var((*removalValue)(&p.OnRemoval), "on_removal", "what happens to TCP connections whose endpoint or service is removed: `rule` drain, close or close-after=TIME")

	f.Var((*countValue)(&p.MaxConnections), "max_connections", "`number` of TCP connections in all; 0: what the descriptor limit allows")
	f.Var((*countValue)(&p.MaxConnectionsPerService), "max_connections_per_service", "`number` of TCP connections for each port of a service; 0: half of -max_connections")
	f.Var((*countValue)(&p.MaxDialsPerEndpoint), "max_dials_per_endpoint", "`number` of dials to one endpoint at one time; 0: the default")
	f.Var((*countValue)(&p.MaxUDPSessions), "max_udp_sessions", "`number` of UDP sessions in all; 0: a quarter of the descriptor limit")
	f.Var((*countValue)(&p.MaxUDPSessionsPerService), "max_udp_sessions_per_service", "`number` of UDP sessions for each port of a service; 0: half of -max_udp_sessions")
	f.Var((*countValue)(&p.MaxNewUDPSessions), "max_new_udp_sessions", "`number` of UDP sessions that may begin in a second; 0: the default")
	f.Var(portsValue{p}, "allowed_ports", "`ports` that services may claim, such as 8000-8999,team-a=9000-9999: namespace team-a may claim the latter, all others the former; all if not given")
	f.Var((*prefixesValue)(&p.AllowedEndpoints), "allowed_endpoints", "`networks` that may contain endpoints, such as 10.0.0.0/8; all if not given")

	f.Var((*placeValue)(&o.operators.Healthz), "healthz_bind_address", "`address` with port for /livez, /healthz and /readyz; empty: none")
	f.Var((*placeValue)(&o.operators.Metrics), "metrics_bind_address", "`address` with port for these pages, /metrics, /configz and /version; empty: none")
	f.BoolVar(&o.metricsEndpoints, "metrics_endpoints", false, "add metrics of each endpoint")
	f.BoolVar(&o.operators.Profiling, "profiling", false, "serve /debug/pprof/ at -metrics_bind_address")
	f.Var(zeroOr(leastMaxAge, &o.configMaxAge), "config_max_age", "age of the served state above which /readyz fails; 0: no limit")
	f.StringVar(&o.stateDir, "state_dir", "", "`directory` that keeps the served state: a start while no source can be read serves it after 3 s; empty: none")
	f.Var(positive(&o.stateMaxAge), "state_max_age", "age above which the state in -state_dir is not served")
	f.StringVar(&o.connectionLog, "connection_log", "", "`file` for a line of JSON about each ended connection and session; - is standard output")

	f.StringVar(&o.takeover, "takeover", "", "`path` of a socket: a process takes over from the one that listens there, and then hands over there; Linux only; empty: never")

	f.Var(positive(&o.logFlush), "log_flush_frequency", "no effect: log files are written at once")
	o.addLogFlags(f)
	return f
}

// newFlagSet begins a flag set with the flags that each program has.
func newFlagSet(name string, version *versionValue) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.SetNormalizeFunc(underscored)
	boolean := func(v pflag.Value, name, shorthand, usage string) {
		f.VarPF(v, name, shorthand, usage).NoOptDefVal = "true"
	}
	boolean(helpValue{}, "help", "h", "print this and exit")
	boolean(version, "version", "", "print the version and exit; =raw prints all details")
	return f
}
