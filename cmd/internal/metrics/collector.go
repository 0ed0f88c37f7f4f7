package metrics

import (
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubeproxy/cmd/internal/logsink"
	"kubeproxy/config"
	"kubeproxy/internal/lograte"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Node is where metrics are read.
type Node struct {
	Ready     func() error           // nil for yes
	Live      func() error           // likewise
	Drained   func() bool            // it is not ready because an operator has drained it
	ConfigAge func() time.Duration   // how old what is served may be
	Stale     func() bool            // what is served is from the state file
	Status    func() config.Status   // of all sources taken together
	Lost      func() (all, some int) // see [config.Lost]
	Pending   func() config.Pending
	Proxier   interface {
		PortCounts() [2]proxy.PortCount
		EachTotals() iter.Seq[traffic.Totals] // in no order
		Limits() []traffic.Limit
		AcceptPauses() uint64
		TurnTimes() traffic.TurnTimes
		KernelStatus() *kernel.Status // nil: the kernel is to carry nothing
	}
	Rotation        func(registry.PortKey) (s rotation.Status, ok bool) // endpoints of one port in numbers
	ElectedBy       func(registry.Name) string                          // the key that elects the endpoints of a service, as elections name it; "": none does
	Endpoints       func() []rotation.EndpointStatus
	EndpointsOf     func(registry.Name) []rotation.EndpointStatus // the same of one service
	Checks          func() checks.Counts                          // nil where endpoints are not checked
	FailedTakeovers func() uint64
	UpgradeFailure  func() (time.Time, error) // of the last reload; nil, as a function or as an error: it has not failed
	Overrides       func() int
	RoutesMissing   func() int    // ranges; nil where the node has none of addresses
	RoutesRestored  func() uint64 // nil as well
	HealthNotOpen   func() int    // services whose healthCheckNodePort is not open for them
	Log             interface {   // the connection log; nil if there is none
		Written() uint64
		Dropped() uint64
	}
}

// A collector reads a node each time that it is asked.
type collector struct {
	node Node
	*Metrics
}

// families are all of them.
var families []family

func newFamily(kind prometheus.ValueType, name, help string, labels ...string) family {
	f := family{prometheus.NewDesc("kubeproxy_"+name, help, labels, nil), kind}
	families = append(families, f)
	return f
}

func gauge(name, help string, labels ...string) family {
	return newFamily(prometheus.GaugeValue, name, help, labels...)
}

func counter(name, help string, labels ...string) family {
	return newFamily(prometheus.CounterValue, name, help, labels...)
}

// histogram makes a family whose series are made by [sink.turns].
func histogram(name, help string) family { return newFamily(prometheus.UntypedValue, name, help) }

// What there is to say of the configuration, of etcd, and of the ports.
var (
	ready       = gauge("ready", "1 if /readyz says so: the first state is in force, not too old, and nothing is being drained.")
	live        = gauge("live", "1 if /livez says so: no event loop stands still, and no change has waited for a minute.")
	drained     = gauge("node_drained", "1 while the node is not ready because an operator has drained it, and it works.")
	configAge   = gauge("config_age_seconds", "Age of the served state; before the first state, time since the start.")
	stale       = gauge("config_stale", "1 if the served state is that of -state_dir, because no source could be read since the start.")
	revision    = gauge("etcd_revision", "Revision of etcd up to which changes were received; they are in force when none is pending.")
	connected   = gauge("etcd_connected", "1 if every source answers: etcd, the API server, the directory.")
	sessions    = counter("etcd_sessions_total", "Watches that were established, each with a full list.")
	sessionEnds = counter("etcd_session_ends_total", "Watches that have ended, by reason.", "reason")
	setbacks    = counter("etcd_setbacks_total", "Times that etcd was found restored, wiped or replaced.")
	resyncs     = counter("etcd_resyncs_total", "Full lists that were read beside a working watch.")
	divergences = counter("etcd_divergences_total", "Keys that a resync corrected without an event of the watch.")
	objects     = gauge("objects", "Records in force.", "kind")
	kept        = gauge("kept_services", "Services whose last endpoints stay in force although their leases have ended.")
	lost        = gauge("lost_services", "Services that a source held before and that went at once, while the status page says so; left says whether it holds others.", "left")
	rejected    = gauge("rejected_keys", "Keys whose newest value cannot be used, or that cannot be keys of records.")

	electionHeld     = gauge("election_held", "1 while a name holds a key that elects endpoints, 0 while nobody does, or while etcd is away and the holder does not confirm that it is the primary (kube-proxy/patroni-stale=ask).", "key")
	electionUnserved = gauge("election_unserved", "Services that follow a key that elects endpoints, and that have none.", "key")
	electionChanges  = counter("election_changes_total", "Times that a key that elects endpoints got another holder, or none, since it was first read.", "key")
	electionPaused   = gauge("election_paused", "1 while Patroni leaves the cluster of a key alone.", "key")
	electionLeftOut  = gauge("election_left_out", "Replicas of the cluster of a key that are not given to readers, once for each service of replicas.", "key")
	electionRejected = gauge("election_rejected", "Keys of the cluster of a key whose newest value cannot be used.", "key")

	servicesPending  = gauge("sync_proxy_rules_service_changes_pending", "Changes of services that are waiting to be applied.")
	endpointsPending = gauge("sync_proxy_rules_endpoint_changes_pending", "Changes of endpoints that are waiting to be applied.")
	lastApplied      = gauge("sync_proxy_rules_last_timestamp_seconds", "When a batch of changes was last applied, in Unix time.")

	listeners = gauge("listeners", "Ports that are open.", "protocol")
	notOpen   = gauge("ports_not_open", "Ports that are claimed and cannot be opened.", "protocol")
	refused   = gauge("ports_refused", "Ports that services claim and that no service may have.", "protocol")
	waiting   = gauge("claims_waiting", "Claims to ports that another service has.", "protocol")
	inKernel  = gauge("kernel_ports", "Open ports with -kernel=auto, by why the kernel does not carry them; carried: it does.", "reason")
	limitUsed = gauge("limit_used", "Used part of a limit.", "limit")
	limitMax  = gauge("limit_max", "The limit.", "limit")

	healthNotOpen = gauge("health_ports_not_open", "Services whose healthCheckNodePort is not open for them: another service has it, it cannot be opened, or services ask for too many.")

	overrides = gauge("overrides", "Endpoints that operators have drained, disabled or given a weight at this node, and 1 more if the node is drained.")
	unrouted  = gauge("service_routes_missing", "Ranges of -service_cidr that this node has no route for, or cannot tell: services at their addresses get no clients.")
	restored  = counter("service_routes_restored_total", "Routes of -service_cidr that another program deleted, and that were made again.")

	failedTakeovers = counter("takeovers_failed_total", "Successors that asked to take over and did not, also those refused at once: this process went on.")
	reloadFailed    = gauge("reload_failed", "1 if the successor of the last reload did not take over: this process goes on with the flags and the program of before.")

	pauses = counter("accept_pauses_total", "Pauses of TCP listeners after an accept that failed, or for lack of descriptors.")

	checked     = gauge("checked_endpoints", "Addresses that are checked, by what the checks have found: pass, fail, or unknown before the first one.", "state")
	overdue     = gauge("overdue_checks", "Addresses whose checks have had no result for two intervals and a timeout.")
	checksTotal = counter("checks_total", "Checks of endpoints that have ended, by result: pass or fail.", "result")

	turns       = histogram("loop_turn_seconds", "Turns of the event loops. All clients of a loop wait while a turn lasts.")
	longestTurn = gauge("loop_longest_turn_seconds", "The longest turn of an event loop since the start, the present ones included.")

	logLines   = counter("connection_log_lines_total", "Lines that were written to the connection log.")
	logDropped = counter("connection_log_dropped_lines_total", "Lines of the connection log that were lost.")

	linesDropped = counter("log_dropped_lines_total", "Log lines that were lost because the log could not be written: a full disk, or a pipe that is not read.")
	linesHeld    = counter("log_held_back_lines_total", "Log lines that were not written because there were too many of their kind.")
)

// What there is to say of traffic, by service.
var (
	active   = gauge("connections_active", "TCP connections now, those that are looking for an endpoint included.", "service", "port_name")
	begun    = counter("connections_total", "TCP clients that were accepted, those that were turned away included.", "service", "port_name")
	ended    = counter("connections_ended_total", "TCP connections that have ended, and clients that were turned away, by reason.", "service", "port_name", "reason")
	sent     = counter("sent_bytes_total", "Bytes from clients that were handed to endpoints.", "service", "port_name", "protocol")
	received = counter("received_bytes_total", "Bytes from endpoints that were handed to clients.", "service", "port_name", "protocol")
	failures = counter("dial_failures_total", "Attempts that did not reach an endpoint, also when a later one did.", "service", "port_name", "protocol")

	kernelBegun = counter("kernel_connections_total", "TCP connections and UDP flows that the kernel carries, of kubeproxy_connections_total and kubeproxy_udp_sessions_total.", "service", "port_name", "protocol")

	udpActive   = gauge("udp_sessions_active", "UDP sessions now.", "service", "port_name")
	udpBegun    = counter("udp_sessions_total", "UDP sessions that have begun.", "service", "port_name")
	udpEnded    = counter("udp_sessions_ended_total", "UDP sessions that have ended, by reason.", "service", "port_name", "reason")
	udpMoved    = counter("udp_sessions_moved_total", "Times that a UDP session moved to another endpoint.", "service", "port_name")
	udpSent     = counter("udp_sent_datagrams_total", "Datagrams from clients that were handed to endpoints.", "service", "port_name")
	udpReceived = counter("udp_received_datagrams_total", "Datagrams from endpoints that were handed to clients.", "service", "port_name")
	udpDropped  = counter("udp_dropped_datagrams_total", "Datagrams that were not carried further, by reason.", "service", "port_name", "reason")

	endpoints = gauge("service_endpoints", "Endpoints of a port of a service.", "service", "port_name")
	failing   = gauge("service_endpoints_failing", "Endpoints that did not answer the last client that was given them, or that fail their checks.", "service", "port_name")
	zoned     = counter("zone_clients_total", "Clients that were given an endpoint in the zone of the node (same), or in another one (other), as far as records and -node_zone say so.", "service", "port_name", "zone")
	spilling  = gauge("service_spilling", "1 while no endpoint near the node answers, so that clients are given others.", "service", "port_name")
	condition = gauge("service_condition", "1 for what new clients of a port of a service get, unless it is an endpoint that is well.", "service", "port_name", "condition")

	endpointActive   = gauge("endpoint_active", "Connections and sessions of an endpoint now.", "service", "port_name", "endpoint")
	endpointTotal    = counter("endpoint_connections_total", "Connections and sessions that an endpoint was given since it came.", "service", "port_name", "endpoint")
	endpointFailures = counter("endpoint_dial_failures_total", "Attempts that did not reach an endpoint, since it came.", "service", "port_name", "endpoint")
	endpointEjected  = gauge("endpoint_passed_over", "1 while an endpoint is ejected, because it did not answer.", "service", "port_name", "endpoint")
	endpointFails    = gauge("endpoint_check_failing", "1 while the checks of an endpoint fail.", "service", "port_name", "endpoint")
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, f := range families {
		descs <- f.Desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	out := sink(metrics)
	st := c.node.Status()
	c.collectConfig(out, st)
	c.collectPorts(out)
	unserved := make(map[string]map[registry.Name]bool) // by the key that elects their endpoints
	told := make(map[registry.PortKey]bool)             // a service may have one name for a port of each protocol
	for t := range c.node.Proxier.EachTotals() {
		if r, ok := c.node.Rotation(t.Service); ok && !told[t.Service] {
			told[t.Service] = true
			out.rotation(r)
			if r.Endpoints == 0 && len(st.Elections) > 0 {
				addTo(unserved, c.node.ElectedBy(t.Service.Name), t.Service.Name)
			}
		}
		if t.Protocol == registry.UDP {
			out.udp(t)
		} else {
			out.tcp(t)
		}
	}
	out.elections(st.Elections, unserved)
	c.endpoints(out)
	if c.node.Checks != nil {
		out.checks(c.node.Checks())
	}
	if c.node.Log != nil {
		out.tell(logLines, float64(c.node.Log.Written()))
		out.tell(logDropped, float64(c.node.Log.Dropped()))
	}
	out.tell(linesDropped, float64(logsink.Dropped()))
	out.tell(linesHeld, float64(lograte.Held()))
}

// addTo adds a name to the set of a key.
func addTo(sets map[string]map[registry.Name]bool, key string, name registry.Name) {
	if sets[key] == nil {
		sets[key] = make(map[registry.Name]bool)
	}
	sets[key][name] = true
}

func (c collector) collectConfig(out sink, st config.Status) {
	out.tell(ready, truth(c.node.Ready() == nil))
	out.tell(live, truth(c.node.Live() == nil))
	out.tell(drained, truth(c.node.Drained()))
	out.tell(configAge, c.node.ConfigAge().Seconds())
	out.tell(stale, truth(c.node.Stale()))
	out.tell(revision, float64(st.Revision))
	out.tell(connected, truth(st.Connected))
	out.tell(sessions, float64(st.Sessions))
	for _, end := range st.Ends {
		out.tell(sessionEnds, float64(end.Count), end.Cause)
	}
	out.tell(setbacks, float64(st.Setbacks))
	out.tell(resyncs, float64(st.Resyncs))
	out.tell(divergences, float64(st.Divergences))
	out.tell(objects, float64(st.Services), "service")
	out.tell(objects, float64(st.Endpoints), "endpoints")
	out.tell(kept, float64(st.Kept))
	all, some := c.node.Lost()
	out.tell(lost, float64(all), "none")
	out.tell(lost, float64(some), "some")
	out.tell(rejected, float64(st.Rejected))

	pending := c.node.Pending()
	out.tell(servicesPending, float64(pending.Services))
	out.tell(endpointsPending, float64(pending.Endpoints))
	if at := c.lastApplied(); !at.IsZero() {
		out.tell(lastApplied, float64(at.UnixMilli())/1000)
	}
}

func (c collector) collectPorts(out sink) {
	for protocol, n := range c.node.Proxier.PortCounts() {
		name := registry.Protocol(protocol).String()
		out.tell(listeners, float64(n.Open), name)
		out.tell(notOpen, float64(n.Unopened), name)
		out.tell(refused, float64(n.Refused), name)
		out.tell(waiting, float64(n.Waiting), name)
	}
	out.tell(healthNotOpen, float64(c.node.HealthNotOpen()))
	if s := c.node.Proxier.KernelStatus(); s != nil {
		for reason, n := range s.Ports {
			out.tell(inKernel, float64(n), kernel.Reason(reason).String())
		}
	}
	out.tell(overrides, float64(c.node.Overrides()))
	if c.node.RoutesMissing != nil {
		out.tell(unrouted, float64(c.node.RoutesMissing()))
		out.tell(restored, float64(c.node.RoutesRestored()))
	}
	out.tell(failedTakeovers, float64(c.node.FailedTakeovers()))
	out.tell(reloadFailed, truth(c.reloadFailed()))
	out.tell(pauses, float64(c.node.Proxier.AcceptPauses()))
	out.turns(c.node.Proxier.TurnTimes())
	for _, l := range c.node.Proxier.Limits() {
		out.tell(limitUsed, float64(l.Used), l.Name)
		out.tell(limitMax, float64(l.Max), l.Name)
	}
}

func (c collector) reloadFailed() bool {
	if c.node.UpgradeFailure == nil {
		return false
	}
	_, err := c.node.UpgradeFailure()
	return err != nil
}

// elections tells of the keys that elect endpoints. Two may be shown alike: one that is followed by itself and as the leader of a cluster, of which the
// cluster comes first and says more; or long ones. The first is told of.
func (s sink) elections(all []config.Election, unserved map[string]map[registry.Name]bool) {
	told := make(map[string]bool)
	for i := range all {
		e := &all[i]
		key := registry.Label(e.Key)
		if told[key] {
			continue
		}
		told[key] = true
		s.tell(electionHeld, truth(e.HasHolder()), key)
		s.tell(electionUnserved, float64(len(unserved[e.Key])), key)
		s.tell(electionChanges, float64(e.Count), key)
		s.tell(electionPaused, truth(e.Paused), key)
		s.tell(electionLeftOut, float64(e.LeftOut), key)
		s.tell(electionRejected, float64(e.Unusable), key)
	}
}

// turns tells of the turns of the event loops, where there are any.
func (s sink) turns(t traffic.TurnTimes) {
	count, buckets := uint64(0), make(map[float64]uint64)
	for i, n := range t.Buckets {
		if count += n; i < len(traffic.TurnBuckets) {
			buckets[traffic.TurnBuckets[i].Seconds()] = count
		}
	}
	s <- prometheus.MustNewConstHistogram(turns.Desc, count, t.Sum.Seconds(), buckets)
	s.tell(longestTurn, t.Longest.Seconds())
}

func (s sink) checks(n checks.Counts) {
	s.tell(checked, float64(n.Targets-n.Failing-n.Unknown), "pass")
	s.tell(checked, float64(n.Failing), "fail")
	s.tell(checked, float64(n.Unknown), "unknown")
	s.tell(overdue, float64(n.Overdue))
	s.tell(checksTotal, float64(n.Passed), "pass")
	s.tell(checksTotal, float64(n.Failed), "fail")
}

func (s sink) tcp(t traffic.Totals) {
	p := s.of(t.Service)
	p.tell(active, float64(t.Active))
	p.tell(begun, float64(t.Begun))
	for reason, n := range t.Ended {
		if n > 0 {
			p.with(reasonLabels[reason]).tell(ended, float64(n))
		}
	}
	p.carried(t)
}

func (s sink) udp(t traffic.Totals) {
	p := s.of(t.Service)
	p.tell(udpActive, float64(t.Active))
	p.tell(udpBegun, float64(t.Begun))
	for reason, n := range t.Ended {
		if n > 0 {
			p.with(reasonLabels[reason]).tell(udpEnded, float64(n))
		}
	}
	p.tellAny(udpMoved, t.MovedSessions)
	p.tellAny(udpSent, t.SentDatagrams)
	p.tellAny(udpReceived, t.ReceivedDatagrams)
	for reason, n := range t.Dropped {
		if n > 0 {
			p.with(dropLabels[reason]).tell(udpDropped, float64(n))
		}
	}
	p.carried(t)
}

// The labels that series of all ports have in common.
var (
	reasonLabels    = labelsOf("reason", traffic.Reasons(), traffic.Reason.String)
	conditionLabels = labelsOf("condition", health.Conditions(), health.Condition.String)
	zoneLabels      = labelsOf("zone", []string{"same", "other"}, strings.Clone)
	dropLabels      = labelsOf("reason", traffic.DropReasons(), traffic.DropReason.Code)
	protocolLabels  = labelsOf("protocol", []registry.Protocol{registry.TCP, registry.UDP}, registry.Protocol.String)
)

func (p portSink) carried(t traffic.Totals) {
	p = p.with(protocolLabels[t.Protocol])
	p.tell(sent, float64(t.Sent))
	p.tell(received, float64(t.Received))
	p.tellAny(failures, t.DialFailures)
	p.tellAny(kernelBegun, t.Carried)
}

func (s sink) rotation(r rotation.Status) {
	p := s.of(r.Service)
	p.tell(endpoints, float64(r.Endpoints))
	p.tellAny(failing, uint64(r.Failing))
	for i, n := range r.Zones {
		p.with(zoneLabels[i]).tellAny(zoned, n)
	}
	if r.Spilling {
		p.tell(spilling, 1)
	}
	if r.Condition != health.Served {
		p.with(conditionLabels[r.Condition]).tell(condition, 1)
	}
}

func (s sink) endpoint(e rotation.EndpointStatus) {
	p := s.of(e.Service).with(label("endpoint", registry.Label(e.Addr.String())))
	p.tell(endpointActive, float64(e.Active))
	p.tell(endpointTotal, float64(e.Connections))
	p.tell(endpointFailures, float64(e.Failures))
	p.tell(endpointEjected, truth(!e.EjectedUntil.IsZero()))
	p.tell(endpointFails, truth(e.CheckError != ""))
}

// endpoints tells of the endpoints of the services that are chosen.
func (c collector) endpoints(out sink) {
	tell := func(all []rotation.EndpointStatus) {
		for _, e := range all {
			out.endpoint(e)
		}
	}
	if c.choice.All {
		tell(c.node.Endpoints())
		return
	}
	for _, name := range c.choice.Named {
		tell(c.node.EndpointsOf(name))
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Metrics are all metrics of one node. What happens is noted in them by any goroutine; [Metrics.Watch]
// says where the rest is read.
type Metrics struct {
	Stopwatch

	registry *prometheus.Registry
	page     http.Handler
	dial     prometheus.Histogram
	duration [2]prometheus.Histogram // by protocol
	probes   map[string]*prometheus.CounterVec

	choice Choice
	chosen map[registry.Name]chosen // the services that choice names

	carrying sync.Mutex // guards the field below
	carried  carried    // nil in a process that has taken over from none
}
