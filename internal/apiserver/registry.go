package apiserver

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Dialect is whose behaviour a [Server] has.
type Dialect int

// The dialects.
const (
	V044        Dialect = iota // v1beta1: no namespaces in lists, no uid
	V054                       // v1beta1 with uid
	V1                         // v1 with EndpointSlices
	V1Endpoints                // v1 without EndpointSlices
)

// A Server is an API server and its registry. Its exported fields are set before it is used. Any goroutine may call its methods.
type Server struct {
	Dialect  Dialect
	PageSize int // the most objects of a page that a v1 gives; 0 for as many as are asked for

	mu        sync.Mutex // guards the fields below
	version   int64
	history   []change
	compacted int64 // nothing can be watched from an earlier version
	changed   chan struct{}
	breaks    uint64 // how often all watches were broken
	ending    string // how they were: what they are sent, before their end; "cut" in the middle of an event
	sent      []sent // to watches, beside changes
	intercept func(Exchange) bool
	undecoded map[string]bool
	token     string
	forbidden map[string]bool // verb and resource
	requests  []string
	born      int64
	untold    bool // no watch tells what is written now
	together  bool // what is written now has the version that there is
	watches   int  // that are open
}

// A change is one write.
type change struct {
	version  int64
	resource string
	key      string // namespace/name
	kind     string // ADDED, MODIFIED, DELETED
	object   *object
	untold   bool // no watch tells it
}

// An object is one value of a key.
type object struct {
	namespace, name, uid, created string
	labels, body                  string // JSON members
	version                       int64
}

// New returns a server with an empty registry.
func New(d Dialect) *Server {
	return &Server{
		Dialect: d, version: 3, changed: make(chan struct{}),
		undecoded: make(map[string]bool), forbidden: make(map[string]bool),
	}
}

// EndpointsResource is the resource that has the endpoints of services.
func (s *Server) EndpointsResource() string {
	if s.Dialect == V1 {
		return "endpointslices"
	}
	return "endpoints"
}

// PutService writes a service with one port, and returns the version. Port 0 is one that no proxy can use.
func (s *Server) PutService(namespace, name string, port int) int64 {
	body := fmt.Sprintf(`"port":%d,"protocol":"TCP","selector":{"name":"x"},"containerPort":80`, port)
	if s.Dialect >= V1 {
		body = fmt.Sprintf(`"spec":{"ports":[{"protocol":"TCP","port":%d,"targetPort":80}],"clusterIP":"10.96.0.9"},"status":{"loadBalancer":{}}`, port)
	}
	return s.put(change{resource: "services", object: &object{namespace: namespace, name: name, body: body}})
}

// PutEndpoints writes the endpoints of a service, each "address:port", all with one port, and returns the version.
func (s *Server) PutEndpoints(namespace, name string, addrs ...string) int64 {
	o := &object{namespace: namespace, name: name}
	var hosts []string
	port := "80"
	for _, addr := range addrs {
		host, p, _ := strings.Cut(addr, ":")
		hosts, port = append(hosts, host), p
	}
	switch s.Dialect {
	case V1:
		var each []string
		for _, host := range hosts {
			each = append(each, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true}}`, host))
		}
		o.name += "-1"
		o.labels = fmt.Sprintf(`"kubernetes.io/service-name":%q`, name)
		o.body = fmt.Sprintf(`"addressType":"IPv4","endpoints":[%s],"ports":[{"name":"","protocol":"TCP","port":%s}]`, strings.Join(each, ","), port)
	case V1Endpoints:
		var each []string
		for _, host := range hosts {
			each = append(each, fmt.Sprintf(`{"ip":%q}`, host))
		}
		o.body = fmt.Sprintf(`"subsets":[{"addresses":[%s],"ports":[{"port":%s,"protocol":"TCP"}]}]`, strings.Join(each, ","), port)
	default:
		var each []string
		for _, addr := range addrs {
			each = append(each, strconv.Quote(addr))
		}
		if each != nil {
			o.body = `"endpoints":[` + strings.Join(each, ",") + `]`
		}
	}
	return s.put(change{resource: s.EndpointsResource(), object: o})
}

// DeleteService deletes a service, and returns the version.
func (s *Server) DeleteService(namespace, name string) int64 {
	return s.put(change{resource: "services", key: namespace + "/" + name, kind: "DELETED"})
}

// DeleteEndpoints deletes the endpoints of a service, and returns the version.
func (s *Server) DeleteEndpoints(namespace, name string) int64 {
	if s.Dialect == V1 {
		name += "-1"
	}
	return s.put(change{resource: s.EndpointsResource(), key: namespace + "/" + name, kind: "DELETED"})
}

// Untold has f write what no watch tells, as etcd's update and expire, and a recursive deletion, in v0.4.4.
func (s *Server) Untold(f func()) {
	s.mu.Lock()
	s.untold = true
	s.mu.Unlock()
	f()
	s.mu.Lock()
	s.untold = false
	s.mu.Unlock()
}

// put makes a change.
func (s *Server) put(c change) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.together {
		s.version++
	}
	c.version = s.version
	if c.object != nil {
		c.key = c.object.namespace + "/" + c.object.name
	}
	before := s.stateLocked(c.resource, s.version-1)[c.key]
	switch {
	case c.kind == "DELETED" && before == nil:
		return s.version // the version is used up by something else
	case c.kind == "DELETED":
		gone := *before
		c.object = &gone
	case before == nil:
		c.kind = "ADDED"
		s.born++
		c.object.uid = fmt.Sprintf("97df6c1c-e676-11f1-a312-%012d", s.born)
		c.object.created = time.Unix(1_790_000_000+s.born, 0).UTC().Format(time.RFC3339)
	default:
		c.kind = "MODIFIED"
		c.object.uid, c.object.created = before.uid, before.created
	}
	c.object.version, c.untold = c.version, s.untold
	s.history = append(s.history, c)
	s.wakeLocked()
	return c.version
}

// stateLocked gives the objects of a resource as of a version.
func (s *Server) stateLocked(resource string, at int64) map[string]*object {
	state := make(map[string]*object)
	for _, c := range s.history {
		switch {
		case c.version > at:
			return state
		case c.resource != resource:
		case c.kind == "DELETED":
			delete(state, c.key)
		default:
			state[c.key] = c.object
		}
	}
	return state
}

// sorted gives objects in the order of their keys.
func sorted(state map[string]*object) []*object {
	var all []*object
	for _, o := range state {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return all
}

// Version is the version of the last write.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// AtVersion has f write all that it writes with one version, as a transaction in etcd does. Without it each write has the next.
func (s *Server) AtVersion(version int64, f func()) {
	s.mu.Lock()
	s.version, s.together = version, true
	s.mu.Unlock()
	f()
	s.mu.Lock()
	s.together = false
	s.mu.Unlock()
}

// Compact forgets the history: no watch can begin at an earlier version than the present one, and pages of older lists are lost.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

// Wipe has the registry begin anew, empty, at a small version. Watches that are open stay silent.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.history, s.compacted = 3, nil, 0
}

// Restore has the registry go back to a version, as with a backup. Watches that are open stay silent.
func (s *Server) Restore(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	s.history = slices.DeleteFunc(s.history, func(c change) bool { return c.version > version })
}

// Undecodable writes a record that the server cannot decode, as etcdctl could: while it is there a v1beta1 refuses every list of
// services, and no watch tells of it. Mend removes it.
func (s *Server) Undecodable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.undecoded["services"] = true
}

// Mend removes what [Server.Undecodable] wrote.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	clear(s.undecoded)
}

// Token sets the only bearer token that is good from now on; empty: none is needed.
func (s *Server) Token(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Forbid has the server refuse a verb, list or watch, on a resource.
func (s *Server) Forbid(verb, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden[verb+" "+resource] = true
}

// Grant takes back what [Server.Forbid] said.
func (s *Server) Grant(verb, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.forbidden, verb+" "+resource)
}

// Break has a function asked first about each request: it reports whether it has answered it. Nil ends that.
func (s *Server) Break(answer func(Exchange) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = answer
}

// sent is a line to all watches of a resource.
type sent struct{ resource, line string }

// Send sends a line to every watch of a resource.
func (s *Server) Send(resource, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sent{resource, line})
	s.wakeLocked()
}

// Mute has the watches that are open stay so, and say nothing any more.
func (s *Server) Mute() { s.breakAll("mute") }

// wakeLocked wakes all watches.
func (s *Server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Cut breaks every watch in the middle of an event.
func (s *Server) Cut() { s.breakAll("cut") }

// Expire ends every watch by saying that what it would tell next is no longer known.
func (s *Server) Expire() { s.breakAll(s.expired(s.Version())) }

// EndWatches sends a line to every watch, if it is not empty, and ends them in order.
func (s *Server) EndWatches(line string) { s.breakAll(line) }

func (s *Server) breakAll(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks++
	s.ending = how
	s.wakeLocked()
}

// Watches is how many watches are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Requests are the paths and queries of all requests so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// An Exchange is one request, and the way to answer it.
type Exchange struct {
	W        http.ResponseWriter
	R        *http.Request
	Resource string // services, endpoints or endpointslices; empty for other documents
	Watch    bool
}

// Hang answers nothing for as long as the client waits.
func (e Exchange) Hang() { <-e.R.Context().Done() }

// Refuse answers with a status and a message, as API servers do.
func (e Exchange) Refuse(code int, message, reason string) {
	e.W.Header().Set("Content-Type", "application/json")
	e.W.WriteHeader(code)
	fmt.Fprint(e.W, statusOf(code, message, reason))
}

// expired is what a watch gets that begins before what is known.
func (s *Server) expired(from int64) string {
	if s.Dialect >= V1 {
		return `{"type":"ERROR","object":` + statusOf(http.StatusGone, fmt.Sprintf("too old resource version: %d (%d)", from, from+9), "Expired") + `}`
	}
	return `{"type":"ERROR","object":{"kind":"Status","creationTimestamp":null,"apiVersion":"v1beta1","status":"Failure","message":"401: The event in requested index is outdated and cleared (the requested history has been cleared [74/10]) [1073]"}}`
}
