package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func statusOf(code int, message, reason string) string {
	text, _ := json.Marshal(message)
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":%q,"code":%d}`, text, reason, code)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := Exchange{W: w, R: r}
	path, old := strings.TrimPrefix(r.URL.Path, "/api/v1beta1/"), false
	if path != r.URL.Path {
		old = true
		path, e.Watch = strings.CutPrefix(path, "watch/")
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/api/v1/"), "/apis/discovery.k8s.io/v1/")
	switch path {
	case "services", "endpoints", "endpointslices":
		e.Resource = path
	}
	if !old {
		e.Watch = r.URL.Query().Get("watch") != ""
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.URL.RequestURI())
	token, forbidden, intercept := s.token, s.forbidden[verb(e)+" "+e.Resource], s.intercept
	s.mu.Unlock()
	switch {
	case intercept != nil && intercept(e):
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		e.Refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case forbidden:
		e.Refuse(http.StatusForbidden, fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q at the cluster scope",
			e.Resource, "system:serviceaccount:kube-system:proxy", verb(e), e.Resource, group(e.Resource)), "Forbidden")
	case e.Resource == "" || old != (s.Dialect < V1) || e.Resource == "endpointslices" && s.Dialect != V1:
		s.document(e)
	case e.Watch:
		s.watch(e)
	default:
		s.list(e)
	}
}

func verb(e Exchange) string {
	if e.Watch {
		return "watch"
	}
	return "list"
}

func group(resource string) string {
	if resource == "endpointslices" {
		return "discovery.k8s.io"
	}
	return ""
}

// document answers what is neither a list nor a watch.
func (s *Server) document(e Exchange) {
	answer := func(text string) {
		e.W.Header().Set("Content-Type", "application/json")
		fmt.Fprint(e.W, text)
	}
	switch path := e.R.URL.Path; {
	case path == "/version":
		answer(fmt.Sprintf(`{"gitVersion":%q}`, [...]string{"v0.4.4", "v0.5.4", "v1.36.3", "v1.16.0"}[s.Dialect]))
	case path == "/api" && s.Dialect == V054 && !strings.Contains(e.R.Header.Get("Accept"), "*/*"):
		http.Error(e.W, "Not Acceptable", http.StatusNotAcceptable) // it does not say which type its document has
	case path == "/api" && s.Dialect == V054:
		answer(`{"versions":["v1beta1","v1beta2"]}`)
	case path == "/api" && s.Dialect >= V1:
		answer(`{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/apis/discovery.k8s.io/v1" && s.Dialect == V1:
		answer(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"discovery.k8s.io/v1","resources":[{"name":"endpointslices","verbs":["list","watch"]}]}`)
	case s.Dialect >= V1:
		e.Refuse(http.StatusNotFound, "the server could not find the requested resource", "NotFound")
	default:
		http.Error(e.W, fmt.Sprintf("Not Found: %q", path), http.StatusNotFound)
	}
}

// list answers with all objects of a resource.
func (s *Server) list(e Exchange) {
	s.mu.Lock()
	at, bad := s.version, s.undecoded[e.Resource] && s.Dialect < V1
	s.mu.Unlock()
	if bad {
		e.Refuse(http.StatusInternalServerError, "couldn't get version/kind: YAML error: line 1: did not find expected node content", "")
		return
	}
	s.ListAt(e, at)
}

// ListAt answers with the list as it was at a version, as a server does that lags behind.
func (s *Server) ListAt(e Exchange, at int64) {
	limit, _ := strconv.Atoi(e.R.URL.Query().Get("limit"))
	if s.PageSize > 0 && limit > 0 {
		limit = min(limit, s.PageSize)
	}
	skip := 0
	s.mu.Lock()
	if token := e.R.URL.Query().Get("continue"); token != "" {
		fmt.Sscanf(token, "%d:%d", &at, &skip)
		if at < s.compacted {
			s.mu.Unlock()
			e.Refuse(http.StatusGone, "The provided continue parameter is too old to display a consistent list result.", "Expired")
			return
		}
	}
	all := sorted(s.stateLocked(e.Resource, at))
	s.mu.Unlock()
	all = all[min(skip, len(all)):]
	next := ""
	if s.Dialect >= V1 && limit > 0 && len(all) > limit {
		all, next = all[:limit], fmt.Sprintf("%d:%d", at, skip+limit)
	}
	var items []string
	for _, o := range all {
		items = append(items, s.text(e.Resource, o, false))
	}
	e.W.Header().Set("Content-Type", "application/json")
	kind, version := kindOf(e.Resource)
	switch {
	case s.Dialect >= V1:
		fmt.Fprintf(e.W, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`+"\n", kind, version, at, next, strings.Join(items, ","))
	case len(items) == 0 && e.Resource == "services":
		fmt.Fprintf(e.W, `{"kind":"ServiceList","creationTimestamp":null,"resourceVersion":%d,"apiVersion":"v1beta1","items":null}`, at)
	case len(items) == 0:
		fmt.Fprintf(e.W, `{"kind":"EndpointsList","creationTimestamp":null,"resourceVersion":%d,"apiVersion":"v1beta1"}`, at)
	default:
		fmt.Fprintf(e.W, `{"kind":"%sList","creationTimestamp":null,"resourceVersion":%d,"apiVersion":"v1beta1","items":[%s]}`, kind, at, strings.Join(items, ","))
	}
}

func kindOf(resource string) (kind, apiVersion string) {
	switch resource {
	case "services":
		return "Service", "v1"
	case "endpoints":
		return "Endpoints", "v1"
	}
	return "EndpointSlice", "discovery.k8s.io/v1"
}

// text writes an object as a list has it, or as a watch.
func (s *Server) text(resource string, o *object, watched bool) string {
	kind, version := kindOf(resource)
	if s.Dialect >= V1 {
		typed := ""
		if watched {
			typed = fmt.Sprintf(`"kind":%q,"apiVersion":%q,`, kind, version)
		}
		return fmt.Sprintf(`{%s"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","creationTimestamp":%q,"labels":{%s}},%s}`,
			typed, o.name, o.namespace, o.uid, o.version, o.created, o.labels, o.body)
	}
	members := []string{fmt.Sprintf(`"id":%q`, o.name)}
	if s.Dialect == V054 {
		members = append(members, fmt.Sprintf(`"uid":%q`, o.uid))
	}
	members = append(members, fmt.Sprintf(`"creationTimestamp":%q,"resourceVersion":%d`, o.created, o.version))
	if watched {
		members = append([]string{fmt.Sprintf(`"kind":%q`, kind)}, append(members, `"apiVersion":"v1beta1"`)...)
	}
	if resource == "services" || s.Dialect == V054 {
		members = append(members, fmt.Sprintf(`"namespace":%q`, o.namespace))
	}
	if o.body != "" {
		members = append(members, o.body)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// watch tells of all changes after a version, until the client goes or the watch is broken.
func (s *Server) watch(e Exchange) {
	from, _ := strconv.ParseInt(e.R.URL.Query().Get("resourceVersion"), 10, 64)
	out := http.NewResponseController(e.W)
	send := func(text string) { fmt.Fprintln(e.W, text); _ = out.Flush() } // who does not listen any more ends the request
	e.W.WriteHeader(http.StatusOK)
	_ = out.Flush()
	var end, bookmark <-chan time.Time
	if s.Dialect >= V1 {
		seconds, _ := strconv.Atoi(e.R.URL.Query().Get("timeoutSeconds"))
		timer, ticker := time.NewTimer(time.Duration(seconds)*time.Second), time.NewTicker(time.Minute)
		defer timer.Stop()
		defer ticker.Stop()
		end, bookmark = timer.C, ticker.C
	}
	s.mu.Lock()
	breaks, compacted, told := s.breaks, s.compacted, len(s.sent)
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.watches--
		s.mu.Unlock()
	}()
	if from < compacted {
		send(s.expired(from))
		return
	}
	for {
		news, lines, changed, broken := s.after(e.Resource, from, breaks, told)
		told += len(lines)
		for _, line := range lines {
			if line.resource == e.Resource {
				send(line.line)
			}
		}
		for _, c := range news {
			from = c.version
			if !c.untold {
				send(fmt.Sprintf(`{"type":%q,"object":%s}`, c.kind, s.text(e.Resource, c.object, true)))
			}
		}
		if broken != nil {
			switch *broken {
			case "cut":
				fmt.Fprint(e.W, `{"type":"ADDED","object":{"kind":`)
				_ = out.Flush()
				panic(http.ErrAbortHandler)
			case "mute":
				e.Hang()
			case "":
			default:
				send(*broken)
			}
			return
		}
		select {
		case <-changed:
		case <-e.R.Context().Done():
			return
		case <-end:
			return
		case <-bookmark:
			kind, version := kindOf(e.Resource)
			s.mu.Lock()
			from = max(from, s.version)
			s.mu.Unlock()
			send(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"}}}`, kind, version, from))
		}
	}
}

// after gives the changes of a resource after a version, the lines that were sent beside, what is closed when there is more, and
// how all watches were broken since, nil for not.
func (s *Server) after(resource string, from int64, breaks uint64, told int) (news []change, lines []sent, changed <-chan struct{}, broken *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.history {
		if c.resource == resource && c.version > from {
			news = append(news, c)
		}
	}
	if breaks != s.breaks {
		how := s.ending
		broken = &how
	}
	return news, s.sent[told:], s.changed, broken
}
