// Kube-proxy carries clients to services: it listens on the port of each service that etcd tells of,
// and gives each client to one of that service's endpoints.
//
//	kube-proxy -etcd_servers=URL[,URL...] [flags]
//	kube-proxy -etcd_config=FILE          [flags]
//	kube-proxy check                      [flags] [DIRECTORY]
//
// This is its manual. It is also the last page to read: package cmd/internal/node has the wiring,
// and what happens to a record and to a connection is told by packages config and proxy.
//
// # The command line
//
// It is v0.4's. A name takes one dash or two, and its words are joined by underscores or dashes.
// A value follows after "=" or as the next argument, except that true and false need the "=". The
// last use of a flag wins, and -etcd_servers adds to its list. Arguments that are no flags are
// refused: v0.4 took no notice of them, nor of the flags after them.
//
// Where the records are:
//
//	-etcd_servers        URLs of the members of an etcd, v3, separated by commas; no scheme means http
//	-etcd_config         a file with client settings as v0.4's etcd client saved them, instead
//	-config_sync_period  how often everything is read again, beside the watch (30s)
//
// How etcd is known to be etcd, and we to be us. For https the server is verified, with the
// system's authorities if no others are given. Once one of the first four is given, what the file
// of -etcd_config says about TLS does not count:
//
//	-etcd_cafile                     a file with the authorities that may vouch for it (PEM)
//	-etcd_certfile, -etcd_keyfile    our certificate and key; read again for each connection
//	-etcd_insecure_skip_tls_verify   do not verify it
//	-etcd_username                   a user to log in as
//	-etcd_password_file              a file with the password; an end of line at its end is no part of it
//
// How clients are served:
//
//	-engine               how bytes move: epoll (Linux), portable, or auto for the best there is (auto)
//	-bind_address         what every listener binds to (0.0.0.0: every address of both families)
//	-rr_random_start      begin each rotation anywhere, or a fleet would herd on the first endpoint (true)
//	-dial_timeout         how long one endpoint may take to accept (1s)
//	-dial_total_timeout   how long all of them together may take, for one client (5s)
//	-half_closed_timeout  how long a connection may be silent once one side has finished (60s)
//	-udp_timeout          how long a UDP session may be silent (60s)
//	-tcp_keepalive        time between two probes of a silent peer; three may go unanswered (15s)
//	-drain_timeout        how long connections may go on once we are told to stop; 0: not at all (30s)
//	-on_removal           what becomes of TCP connections whose endpoint or service is removed: drain lets
//	                      them go on, close ends them, close-after=TIME ends them so much later (drain)
//
// How many may be served, and what a record may ask for. A limit of 0 is derived from the descriptor limit:
//
//	-max_connections               TCP connections in all
//	-max_connections_per_service   TCP connections for each port of a service (half of these)
//	-max_dials_per_endpoint        dials to one endpoint at one time
//	-max_udp_sessions              UDP sessions in all
//	-max_udp_sessions_per_service  UDP sessions for each port of a service (half of these)
//	-max_new_udp_sessions          UDP sessions that may begin in a second (5000)
//	-allowed_ports                 ports that services may claim: 80,8000-8999,team-a=9000-9999 (all)
//	-allowed_endpoints             networks that endpoints may be in: 10.0.0.0/8,fd00::/8 (anywhere)
//
// Where operators are answered, and what they see; docs/operating.md tells of all of it:
//
//	-healthz_bind_address  /livez, /healthz and /readyz; empty: nowhere (0.0.0.0:10256)
//	-metrics_bind_address  these, /metrics, /configz and /version; empty: nowhere (127.0.0.1:10249)
//	-metrics_endpoints     metrics of each endpoint, too
//	-profiling             /debug/pprof/ at -metrics_bind_address
//	-config_max_age        how old what is served may be before /readyz complains; 0: as old as it likes (0)
//	-connection_log        a file for a line of JSON about each connection and session that ended; -: standard output
//
// Times need a unit. None may be zero but -drain_timeout and -config_max_age.
//
// What it says: -v=1 tells of listeners, 2 of each connection, 3 of each decision, 4 of all that was
// received; -vmodule=proxier=3 sets the level of one source file. Logs go to standard error unless
// -logtostderr=false, and then to files in -log_dir. A log that cannot be written loses lines,
// and nothing else; -log_flush_frequency and -logbuflevel have no effect.
//
// -version prints the version, -version=raw all that is known of the build, -help the rest of the flags.
// -master and the flags that go with it are v0.4's for reading from the Kubernetes API. That is not
// there yet, and -master says so; the others are ignored with a warning, as they mean nothing without it.
//
// # Checking the records
//
// After the word check, which counts in the first place only, it runs no proxy. It reads the records
// of etcd, or of a directory in which the path of a file is its key, gives each its verdict, and tells
// what does not fit together. It takes the flags above, and two more:
//
//	-o        text or json (text)
//	-timeout  how long to wait for etcd, in all (10s)
//
// docs/check.md has the verdicts and the form of the JSON.
//
// # Its life
//
// It starts whether etcd can be reached or not, and opens its first port when it has read everything
// once. From then on it follows etcd, and serves what it knows while etcd is away.
//
// SIGTERM or SIGINT closes the listeners. Connections that are being relayed may go on for
// -drain_timeout; when the last has ended, so has the program. A second signal ends it at once.
// Services come and go without a restart, so there is nothing to reload. SIGHUP or SIGUSR1
// has the logs reopened by their names, for programs that rotate logs.
//
// As a systemd service it is of Type=notify: it says READY=1 when the first state is in force, or after ten
// seconds without it, and STOPPING=1 when it drains. STATUS= says what it does, or what it waits for. TimeoutStopSec should be more than -drain_timeout, and ports
// below 1024 need AmbientCapabilities=CAP_NET_BIND_SERVICE. docs/kube-proxy.service has it all.
//
// # Exit status
//
//	0  a clean stop, -version, -help
//	1  it could not start or go on; a file cannot be used. The reason is the last line of the log.
//	   After check: something is wrong with the records, or they could not be read.
//	2  the command line makes no sense, or its flags contradict each other: one line says how
package main
