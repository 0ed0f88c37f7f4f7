package main

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/proxy"
	"kubeproxy/registry"
)

// options is what the command line asks for. Its flags write to the fields that the parts of the program read, so no value is copied.
type options struct {
	configFile  string
	configNotes []string // about the file

	logToStderr bool
	logFlush    time.Duration

	proxy       proxy.Config
	randomStart bool

	operators        operators.Config
	metricsEndpoints commandline.Services
	configMaxAge     time.Duration
	stateDir         string
	stateMaxAge      time.Duration
	stopGrace        time.Duration
	connectionLog    string
	connectionStarts bool
	pageActions      string
	checkCAFile      string
	takeover         string
	control          string

	source sourceOptions
}

// leastMaxAge is the least that -config_max_age may be. Etcd gives a sign about every second, but an etcd behind a proxy, or one that
// is busy, may take some.
const leastMaxAge = 10 * time.Second

// defaults is what an empty command line asks for.
func defaults() *options {
	return &options{
		logFlush:    5 * time.Second,
		proxy:       proxy.Defaults(),
		randomStart: true,
		operators:   operators.Config{Healthz: netip.AddrPortFrom(netip.IPv4Unspecified(), 10256), Metrics: netip.MustParseAddrPort("127.0.0.1:10249")},
		stateMaxAge: 24 * time.Hour,
		source:      sourceOptions{sync: 30 * time.Second, port: offerPort, at: atNode, etcd: etcdOptions{version: etcdAuto}},
	}
}

// commandLine returns the command line of the proxy, whose flags fill in o.
func (o *options) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy", "", "connects clients to services, until SIGTERM", o.examine)
	o.addFlags(c)
	return c
}

// examine looks at the arguments that are not flags, and whether the flags go together.
func (o *options) examine(flags *pflag.FlagSet) error {
	if flags.NArg() > 0 { // v0.4 dropped what it did not understand here, flags included
		return commandline.Unexpected(flags.Arg(0), "kube-proxy", manual().Words()...)
	}
	if err := o.readConfig(flags); err != nil {
		return err
	}
	if o.proxy.Kernel && !flags.Changed(intervalFlag) {
		o.proxy.Checks.Interval = kernelInterval
	}
	if !flags.Changed(dialFlag) {
		o.proxy.DialTimeout = min(o.proxy.DialTimeout, o.proxy.DialTotalTimeout)
	}
	return o.contradiction()
}

// Flags whose default depends on another one.
const (
	intervalFlag = "endpoint_check_interval"
	dialFlag     = "dial_timeout"
)

// kernelInterval is the default of -endpoint_check_interval with -kernel=auto. The kernel gives clients to a dead endpoint until a check of it
// fails, and to a hung one for the timeout of the check longer, which is at most half the interval: less than two seconds in all.
const kernelInterval = time.Second

// readConfig sets the flags that the file of -config has, and the command line does not.
func (o *options) readConfig(flags *pflag.FlagSet) error {
	if o.configFile == "" {
		return nil
	}
	settings, notes, err := commandline.ReadFile(o.configFile)
	if err != nil {
		return err
	}
	o.configNotes = notes
	return commandline.Fill(flags, settings, "config", "help", "version", "h")
}

// addFlags adds the flags that fill in o. v0.4's flags have their old names; of the others, those that later kube-proxies have too
// have the same name as there.
func (o *options) addFlags(c *commandline.Command) {
	o.source.addFlags(c)
	c.Group(commandline.General, func(f *pflag.FlagSet) {
		f.StringVar(&o.configFile, "config", "", "YAML `file` with the names of flags and their values, or a KubeProxyConfiguration; the command line wins over it; SIGHUP has it read again")
	})
	p := &o.proxy
	c.Group(topicListening, func(f *pflag.FlagSet) {
		f.Var((*commandline.Address)(&p.BindAddress), "bind_address", "`address` that every listener binds to; 0.0.0.0 is all addresses of both families")
		f.Var((*commandline.Networks)(&p.ServiceRanges), "service_cidr", "`networks` such as 10.96.0.0/12 that this node answers for, so that services can have addresses of them; takes CAP_NET_ADMIN; Linux only")
		f.Var((*commandline.Engine)(&p.Engine), "engine", "`engine` that moves the bytes: "+strings.Join(proxy.KindNames(), ", ")+" (the best one for this system)")
		f.Var((*commandline.Kernel)(&p.Kernel), "kernel", "`mode`: off, or auto, which has the kernel carry ports by nftables whose endpoints are checked and pass; Linux only; takes CAP_NET_ADMIN")
	})
	c.Group(topicTimeouts, func(f *pflag.FlagSet) {
		f.BoolVar(&o.randomStart, "rr_random_start", o.randomStart, "start each rotation at a random endpoint, not at the first one")
		f.Var((*commandline.Balance)(&p.Balance), "load_balance", "`algorithm` of services whose record names none: roundrobin, leastconn (the endpoint with the fewest clients) or source (by the client's address)")
		f.BoolVar(&p.Checks.On, "check_endpoints", false, "check endpoints while no client comes, unless the record of their service says otherwise; Linux only")
		f.Var(commandline.AtLeast(registry.MinCheckInterval, &p.Checks.Interval), intervalFlag, "interval between two checks of an endpoint, unless the record of its service names one; 1s with -kernel=auto if not given")
		f.Var(commandline.Positive(&p.Checks.Timeout), "endpoint_check_timeout", "time for an answer to a check, at most half the interval and 30s, unless the record of its service names one")
		f.Var((*commandline.Count)(&p.Checks.Fall), "endpoint_check_fall", "`number` of checks in a row that fail before clients are given other endpoints; 0: the default")
		f.Var((*commandline.Count)(&p.Checks.Rise), "endpoint_check_rise", "`number` of checks in a row that pass before the endpoint is used again; 0: the default")
		f.StringVar(&o.checkCAFile, "endpoint_check_cafile", "", "CA `file` that verifies the certificates of endpoints in checks over TLS (PEM); the system's if not given")
		f.Var(commandline.ZeroOr(0, &p.Checks.SlowStart), "endpoint_check_slow_start", "time in which the share of clients grows of an endpoint that passes its checks again")
		f.Var(commandline.Positive(&p.DialTimeout), dialFlag, "time for one endpoint to accept a connection, unless the record of its service says otherwise; if not given, at most -dial_total_timeout")
		f.Var(commandline.Positive(&p.DialTotalTimeout), "dial_total_timeout", "time for all endpoints that are tried for one client")
		f.Var(commandline.Positive(&p.HalfClosedTimeout), "half_closed_timeout", "silence allowed once one side of a TCP connection has finished or died")
		f.Var(commandline.ZeroOr(registry.MinIdleTimeout, &p.IdleTimeout), "idle_timeout", "silence after which a TCP connection ends, unless the record of its service says otherwise; 0: none")
		f.Var(commandline.Positive(&p.UDPTimeout), "udp_timeout", "silence after which a UDP session ends, unless the record of its service says otherwise")
		f.Var(commandline.Positive(&p.TCPKeepAlive), "tcp_keepalive", "interval between keepalive probes; after three without an answer the connection is dead")
		f.Var(commandline.ZeroOr(0, &o.stopGrace), "stop_grace", "time after SIGTERM or SIGINT in which the node is not ready and goes on accepting clients, before the drain begins; 0: none")
		f.Var(commandline.ZeroOr(0, &p.DrainTimeout), "drain_timeout", "time for connections to finish after SIGTERM or SIGINT; 0 closes them at once")
		f.Var((*commandline.Removal)(&p.OnRemoval), "on_removal", "what happens to TCP connections whose endpoint or service is removed, unless the record of the service says otherwise: `rule` drain, close or close-after=TIME")
	})
	o.addLimits(c)
	c.Group(topicSecurity, func(f *pflag.FlagSet) {
		f.Var(commandline.Ports{Config: p}, "allowed_ports", "`ports` that services may claim, such as 8000-8999,team-a=9000-9999: namespace team-a may claim the latter, all others the former; all if not given")
		f.Var((*commandline.Networks)(&p.AllowedListen), "allowed_listen", "`networks` that may contain addresses of services, as of the annotation kube-proxy/listen; if not given, 127.0.0.0/8 and ::1, and all addresses of the node unless -bind_address names one")
		f.Var((*commandline.Networks)(&p.ProxyProtocolFrom), "proxy_protocol_from", "`networks` of other proxies, such as 10.0.0.5: TCP connections from there must begin with a PROXY header, which says who the client is; none if not given")
		f.Var((*commandline.Networks)(&p.AllowedEndpoints), "allowed_endpoints", "`networks` that may contain endpoints, such as 10.0.0.0/8; all if not given")
	})
	c.Group(topicOperators, func(f *pflag.FlagSet) {
		f.Var((*commandline.Place)(&o.operators.Healthz), "healthz_bind_address", "`address` with port for /livez, /healthz and /readyz; empty: none")
		f.Var((*commandline.Place)(&o.operators.Metrics), "metrics_bind_address", "`address` with port for the status page, /metrics, /configz, /version, and the pages of -healthz_bind_address; empty: none")
		f.Var((*commandline.Place)(&o.operators.MetricsOnly), "metrics_only_bind_address", "`address` with port for /metrics alone, for a Prometheus that is not to open the status page; empty: none")
		f.VarPF(&o.metricsEndpoints, "metrics_endpoints", "", "add metrics of each endpoint: of all services, or with =web,team-a/db of these, which have histograms of their own, too").NoOptDefVal = "true"
		f.StringVar(&o.pageActions, "page_actions", "", "`file` with a token that lets the status page drain, disable and enable endpoints, and end their clients; empty: the page is read-only")
		f.BoolVar(&o.operators.Profiling, "profiling", false, "serve /debug/pprof/ at -metrics_bind_address")
		f.Var(commandline.ZeroOr(leastMaxAge, &o.configMaxAge), "config_max_age", "age of the served state above which /readyz fails; 0: no limit")
		f.StringVar(&o.connectionLog, "connection_log", "", "`file` for a line of JSON about each ended connection and session; - is standard output")
		f.BoolVar(&o.connectionStarts, "connection_log_starts", false, "write a line to -connection_log also when a client is given its endpoint")
	})
	c.Group(topicState, func(f *pflag.FlagSet) {
		f.StringVar(&o.stateDir, "state_dir", "", "`directory` that keeps the served state: a start while no source can be read serves it after 3 s; empty: none")
		f.Var(commandline.Positive(&o.stateMaxAge), "state_max_age", "age above which the state in -state_dir is not served")
		f.StringVar(&o.takeover, "takeover", "", "`path` of a socket: a process takes over from the one that listens there, and then hands over there; Linux only; empty: never")
		f.StringVar(&o.control, "control", "", "`path` of the socket by which kube-proxy status and others ask this node and act on it; off: none; Linux only")
	})
	c.Derive("control", controlName+" beside -takeover; none without that", "")
	o.addLogFlags(c)
	c.Group(topicObsolete, func(f *pflag.FlagSet) {
		f.Var(commandline.Positive(&o.logFlush), "log_flush_frequency", "no effect: log files are written at once")
	})
}

// addLimits adds the flags of limits. Most defaults are shares of the descriptor limit.
func (o *options) addLimits(c *commandline.Command) {
	p := &o.proxy
	c.Group(topicLimits, func(f *pflag.FlagSet) {
		f.Var((*commandline.Count)(&p.MaxConnections), "max_connections", "`number` of TCP connections in all; 0: the default")
		f.Var((*commandline.Count)(&p.MaxConnectionsPerService), "max_connections_per_service", "`number` of TCP connections for each port of a service, unless its record says otherwise; 0: the default")
		f.Var((*commandline.Count)(&p.MaxConnectionsPerClient), "max_connections_per_client", "`number` of TCP connections, or of UDP sessions, of one client address for each port of a service, unless its record says otherwise; 0: no such limit")
		f.Var((*commandline.Count)(&p.MaxDialsPerEndpoint), "max_dials_per_endpoint", "`number` of dials to one endpoint at one time; 0: the default")
		f.Var((*commandline.Count)(&p.MaxUDPSessions), "max_udp_sessions", "`number` of UDP sessions in all; 0: the default")
		f.Var((*commandline.Count)(&p.MaxUDPSessionsPerService), "max_udp_sessions_per_service", "`number` of UDP sessions for each port of a service, unless its record says otherwise; 0: the default")
		f.Var((*commandline.Count)(&p.MaxNewUDPSessions), "max_new_udp_sessions", "`number` of UDP sessions that may begin in a second; 0: the default")
	})
	here := proxy.Defaults().WithDefaults()
	derive := func(flag, formula string, value int) { c.Derive(flag, formula, strconv.Itoa(value)) }
	derive("max_connections", "half of the descriptors that -max_udp_sessions and a reserve leave of the limit", here.MaxConnections)
	derive("max_connections_per_service", "-max_connections; when a twentieth of these is left, services with less than an equal share get it", here.MaxConnectionsPerService)
	derive("max_udp_sessions", "a quarter of the descriptor limit", here.MaxUDPSessions)
	derive("max_udp_sessions_per_service", "half of -max_udp_sessions", here.MaxUDPSessionsPerService)
}
