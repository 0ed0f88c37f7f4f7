package main

import (
	"net/netip"
	"time"

	"github.com/spf13/pflag"
)

// options is what the command line asks for.
type options struct {
	version     versionValue
	logToStderr bool
	logFlush    durationValue

	bind        addressValue
	engine      engineValue
	randomStart bool
	dial        durationValue
	dialTotal   durationValue
	halfClosed  durationValue
	udp         durationValue
	keepAlive   durationValue
	drain       durationValue
	onRemoval   removalValue

	connections           countValue
	connectionsPerService countValue
	dialsPerEndpoint      countValue
	sessions              countValue
	sessionsPerService    countValue
	newSessions           countValue
	allowedPorts          portsValue
	allowedEndpoints      prefixesValue

	healthz          placeValue
	metrics          placeValue
	metricsEndpoints bool
	profiling        bool
	configMaxAge     durationValue
	stateDir         string
	stateMaxAge      durationValue
	connectionLog    string

	source sourceOptions
}

// defaults is what an empty command line asks for.
func defaults() *options {
	seconds := func(n time.Duration) durationValue { return durationValue{Duration: n * time.Second} }
	return &options{
		logFlush:     seconds(5),
		bind:         addressValue(netip.IPv4Unspecified()),
		randomStart:  true,
		dial:         seconds(1),
		dialTotal:    seconds(5),
		halfClosed:   seconds(60),
		udp:          seconds(60),
		keepAlive:    seconds(15),
		drain:        durationValue{Duration: 30 * time.Second, zero: true},
		healthz:      placeValue(netip.AddrPortFrom(netip.IPv4Unspecified(), 10256)),
		metrics:      placeValue(netip.MustParseAddrPort("127.0.0.1:10249")),
		configMaxAge: durationValue{zero: true, least: leastMaxAge},
		stateMaxAge:  durationValue{Duration: 24 * time.Hour},
		source:       sourceOptions{sync: seconds(30), etcd: etcdOptions{version: etcdAuto}},
	}
}

// flagSet gives the flags that fill in o: all of v0.4's by their old names, and ours by the names
// that later kube-proxies gave them, where there is one.
func (o *options) flagSet() *pflag.FlagSet {
	f := newFlagSet("kube-proxy", &o.version)
	o.source.addFlags(f)

	f.Var(&o.bind, "bind_address", "`address` that every service listens on")
	f.Var(&o.engine, "engine", "`how` bytes move: epoll (Linux), portable, or auto for the best there is")
	f.BoolVar(&o.randomStart, "rr_random_start", o.randomStart, "begin each rotation at a random endpoint, not at the first")
	f.Var(&o.dial, "dial_timeout", "how long to wait for one endpoint to accept a connection")
	f.Var(&o.dialTotal, "dial_total_timeout", "how long to look for an endpoint for one client, in all")
	f.Var(&o.halfClosed, "half_closed_timeout", "how long a TCP connection may be silent once one side has finished")
	f.Var(&o.udp, "udp_timeout", "how long a UDP session may be silent")
	f.Var(&o.keepAlive, "tcp_keepalive", "time between the probes that find out whether a silent peer is still there")
	f.Var(&o.drain, "drain_timeout", "how long connections may go on after SIGTERM or SIGINT; 0 cuts them at once")
	f.Var(&o.onRemoval, "on_removal", "what becomes of TCP connections whose endpoint or service is removed: `rule` drain, close or close-after=TIME")

	f.Var(&o.connections, "max_connections", "`number` of TCP connections in all; 0: what the descriptor limit allows")
	f.Var(&o.connectionsPerService, "max_connections_per_service", "`number` of TCP connections for each port of a service; 0: half of all")
	f.Var(&o.dialsPerEndpoint, "max_dials_per_endpoint", "`number` of dials to one endpoint at one time; 0: 1024")
	f.Var(&o.sessions, "max_udp_sessions", "`number` of UDP sessions in all; 0: what the descriptor limit allows")
	f.Var(&o.sessionsPerService, "max_udp_sessions_per_service", "`number` of UDP sessions for each port of a service; 0: half of all")
	f.Var(&o.newSessions, "max_new_udp_sessions", "`number` of UDP sessions that may begin in a second; 0: 5000")
	f.Var(&o.allowedPorts, "allowed_ports", "`ports` that services may claim, such as 8000-8999,team-a=9000-9999: namespace team-a may claim the latter, all others the former; all if not given")
	f.Var(&o.allowedEndpoints, "allowed_endpoints", "`networks` that endpoints may be in, such as 10.0.0.0/8; anywhere if not given")

	f.Var(&o.healthz, "healthz_bind_address", "`address` with port where /livez, /healthz and /readyz are answered; empty: nowhere")
	f.Var(&o.metrics, "metrics_bind_address", "`address` with port where /metrics, /configz and /version are answered too; empty: nowhere")
	f.BoolVar(&o.metricsEndpoints, "metrics_endpoints", false, "have metrics of each endpoint, too")
	f.BoolVar(&o.profiling, "profiling", false, "answer /debug/pprof/ at -metrics_bind_address")
	f.Var(&o.configMaxAge, "config_max_age", "how old what is served may be before /readyz complains; 0: as old as it likes")
	f.StringVar(&o.stateDir, "state_dir", "", "`directory` that keeps what is served: a start while no source can be read serves it after 3 s; empty: none")
	f.Var(&o.stateMaxAge, "state_max_age", "how old what -state_dir keeps may be to be served")
	f.StringVar(&o.connectionLog, "connection_log", "", "`file` for a line of JSON about each connection and session that ended; - is standard output")

	f.Var(&o.logFlush, "log_flush_frequency", "no effect: log files are written at once")
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
	boolean(version, "version", "", "print the version and exit; =raw prints all that is known of it")
	return f
}
