// Package etcdv2 has an etcd 2 in memory, for tests and the school: its v2 API, its rules and its faults, as an [http.Handler]. Who needs to know
// whether the rules are right compares it with a real etcd, as the model test of the etcd 2 source does.
package etcdv2

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Window is how many events etcd 2 remembers, of all keys together.
const Window = 1000

// A node is a key or a directory, as the API shows it.
type node struct {
	Key      string  `json:"key,omitempty"`
	Dir      bool    `json:"dir,omitempty"`
	Value    *string `json:"value,omitempty"`
	Nodes    []*node `json:"nodes,omitempty"`
	Modified int64   `json:"modifiedIndex,omitempty"`
	Created  int64   `json:"createdIndex,omitempty"`
}

type event struct {
	Action string `json:"action"`
	Node   *node  `json:"node"`
	Prev   *node  `json:"prevNode,omitempty"`
	index  int64
}

// A Server is an etcd 2. Any goroutine may use it.
type Server struct {
	mu      sync.Mutex // guards the fields below
	index   int64
	keys    map[string]*node // by key; directories too
	events  []event
	window  int
	version string
	pass    string                // of the user root, if not empty
	silent  chan struct{}         // closed when it answers again; nil: it answers
	polls   map[chan event]string // that wait, with the keys that they are about
	none    bool                  // there is no v2 API
	weak    int                   // lists without quorum
	lagging *snapshot             // what these show; nil: the present
}

// A snapshot is what was there at an index.
type snapshot struct {
	index int64
	keys  map[string]*node
}

// New returns an etcd 2 that is empty.
func New() *Server {
	s := &Server{version: `{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}`, window: Window, polls: make(map[chan event]string)}
	s.Wipe()
	return s
}

// Wipe has it begin again with nothing, as an etcd whose data were removed.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index, s.keys, s.events = 3, map[string]*node{"/": {Dir: true}}, nil
}

// Backup returns a function that has it go back to what there is now, as an etcd that is restored from a backup.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := snapshot{s.index, maps.Clone(s.keys)}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.index, s.keys, s.events = then.index, maps.Clone(then.keys), nil
	}
}

// SetWindow changes how many events are remembered.
func (s *Server) SetWindow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window = n
	s.forgetLocked()
}

// Forget clears the history of events, as a restart after a snapshot does.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = nil
}

// SetVersion changes the answer of /version.
func (s *Server) SetVersion(answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = answer
}

// NoKeys has it serve no v2 API, as an etcd 3 by default.
func (s *Server) NoKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.none = true
}

// Demand has it ask for the password of the user root.
func (s *Server) Demand(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = password
}

// Lag has lists without quorum show what there is now from now on, as those of a member that a leader cannot reach.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lagging = &snapshot{s.index, maps.Clone(s.keys)}
}

// WeakLists is how many lists without quorum there were.
func (s *Server) WeakLists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.weak
}

// Silence has it answer nothing more, and keep its connections, until Resume.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent == nil {
		s.silent = make(chan struct{})
	}
}

// Resume ends a silence.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != nil {
		close(s.silent)
		s.silent = nil
	}
}

// Index is the index of the last write.
func (s *Server) Index() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index
}

// Polls is the number of polls that wait now.
func (s *Server) Polls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.polls)
}

// Deafen has the polls that wait now never be told anything, on connections that stand.
func (s *Server) Deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.polls)
}

// Lose removes a key without an event: what a watch that is broken would not tell.
func (s *Server) Lose(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// awake waits for the end of a silence.
func (s *Server) awake() {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.awake()
	s.mu.Lock()
	version, pass, none := s.version, s.pass, s.none
	s.mu.Unlock()
	if r.URL.Path == "/version" {
		fmt.Fprint(w, version)
		return
	}
	if user, p, _ := r.BasicAuth(); pass != "" && (user != "root" || p != pass) {
		s.fail(w, http.StatusUnauthorized, 0, 110, "The request requires user authentication", "Insufficient credentials")
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/v2/keys")
	if !ok || none {
		http.NotFound(w, r)
		return
	}
	key = path.Clean("/" + key)
	switch {
	case r.Method == http.MethodGet && r.FormValue("wait") == "true":
		s.poll(w, r, key)
	case r.Method == http.MethodGet:
		s.list(w, key, r.FormValue("recursive") == "true", r.FormValue("quorum") == "true")
	default:
		s.write(w, r, key)
	}
}

func (s *Server) head(w http.ResponseWriter, status int, index int64) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Etcd-Cluster-Id", "a9efa5de7f8fc772")
	w.Header().Set("X-Etcd-Index", strconv.FormatInt(index, 10))
	w.WriteHeader(status)
}

func (s *Server) fail(w http.ResponseWriter, status int, index int64, code int, message, cause string) {
	s.head(w, status, index)
	_ = json.NewEncoder(w).Encode(map[string]any{"errorCode": code, "message": message, "cause": cause, "index": index}) // the client has gone, or has it
}

func (s *Server) list(w http.ResponseWriter, key string, recursive, quorum bool) {
	s.mu.Lock()
	now := snapshot{s.index, s.keys}
	if !quorum {
		s.weak++
		if s.lagging != nil {
			now = *s.lagging
		}
	}
	index, found := now.index, now.keys[key]
	if found != nil {
		found = now.show(found, recursive, true)
	}
	s.mu.Unlock()
	if found == nil {
		s.fail(w, http.StatusNotFound, index, 100, "Key not found", key)
		return
	}
	s.head(w, http.StatusOK, index)
	_ = json.NewEncoder(w).Encode(event{Action: "get", Node: found}) // as above
}

func (s *snapshot) show(n *node, recursive, top bool) *node {
	shown := *n
	if n.Dir && (recursive || top) {
		for key, child := range s.keys {
			if path.Dir(key) == cmp.Or(n.Key, "/") && key != "/" && !strings.HasPrefix(path.Base(key), "_") {
				shown.Nodes = append(shown.Nodes, s.show(child, recursive, false))
			}
		}
		slices.SortFunc(shown.Nodes, func(a, b *node) int { return strings.Compare(a.Key, b.Key) })
	}
	return &shown
}

func within(key, dir string) bool { return key == dir || strings.HasPrefix(key, dir+"/") }

// concerns reports whether a recursive watch of a key is told of an event. History is not filtered for hidden keys.
func (e event) concerns(key string, live bool) bool {
	if within(e.Node.Key, key) {
		return !live || !strings.Contains(strings.TrimPrefix(e.Node.Key, key), "/_")
	}
	return within(key, e.Node.Key) && e.Node.Dir
}

func (s *Server) poll(w http.ResponseWriter, r *http.Request, key string) {
	from, _ := strconv.ParseInt(r.FormValue("waitIndex"), 10, 64)
	s.mu.Lock()
	if from == 0 {
		from = s.index + 1
	}
	if oldest := s.oldestLocked(); from < oldest {
		index := s.index
		s.mu.Unlock()
		s.fail(w, http.StatusBadRequest, index, 401, "The event in requested index is outdated and cleared",
			fmt.Sprintf("the requested history has been cleared [%d/%d]", oldest, from))
		return
	}
	index, told := s.index, make(chan event, 1)
	if i := slices.IndexFunc(s.events, func(e event) bool { return e.index >= from && e.concerns(key, false) }); i >= 0 {
		told <- s.events[i]
	} else {
		s.polls[told] = key
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.polls, told)
		s.mu.Unlock()
	}()
	s.head(w, http.StatusOK, index)
	_ = http.NewResponseController(w).Flush() // a client that has gone does not matter
	select {
	case found := <-told:
		s.awake()
		_ = json.NewEncoder(w).Encode(found)
	case <-r.Context().Done():
	}
}

// oldestLocked is the oldest index that a poll may ask for.
func (s *Server) oldestLocked() int64 {
	if len(s.events) == 0 {
		return s.index + 1
	}
	return s.events[0].index
}

func (s *Server) forgetLocked() {
	s.events = slices.Delete(s.events, 0, max(0, len(s.events)-s.window))
}

// Put sets a key, whatever connections demand.
func (s *Server) Put(key, value string) {
	s.write(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/?"+url.Values{"value": {value}}.Encode(), nil), key)
}

// Delete deletes a key, whatever connections demand.
func (s *Server) Delete(key string) {
	s.write(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/", nil), key)
}

// write does what PUT and DELETE do.
func (s *Server) write(w http.ResponseWriter, r *http.Request, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.keys[key]
	prev, _ := strconv.ParseInt(r.FormValue("prevIndex"), 10, 64)
	switch {
	case was == nil && (r.Method == http.MethodDelete || r.FormValue("prevExist") == "true" || prev > 0):
		s.fail(w, http.StatusNotFound, s.index, 100, "Key not found", key)
		return
	case was != nil && r.FormValue("prevExist") == "false":
		s.fail(w, http.StatusPreconditionFailed, s.index, 105, "Key already exists", key)
		return
	case prev > 0 && was.Modified != prev:
		s.fail(w, http.StatusPreconditionFailed, s.index, 101, "Compare failed", fmt.Sprintf("[%d != %d]", prev, was.Modified))
		return
	case was != nil && was.Dir && (r.Method == http.MethodPut || r.FormValue("recursive") != "true"):
		s.fail(w, http.StatusForbidden, s.index, 102, "Not a file", key)
		return
	}
	s.index++
	e := event{index: s.index, Prev: was}
	if r.Method == http.MethodDelete {
		e.Action = "delete"
		if prev > 0 {
			e.Action = "compareAndDelete"
		}
		e.Node = &node{Key: key, Dir: was.Dir, Modified: s.index, Created: was.Created}
		for k := range s.keys {
			if within(k, key) {
				delete(s.keys, k)
			}
		}
	} else {
		value := r.FormValue("value")
		e.Node = &node{Key: key, Value: &value, Modified: s.index, Created: s.index}
		e.Action = "set"
		switch {
		case prev > 0:
			e.Action, e.Node.Created = "compareAndSwap", was.Created
		case r.FormValue("prevExist") == "true":
			e.Action, e.Node.Created = "update", was.Created
		case r.FormValue("prevExist") == "false":
			e.Action = "create"
		}
		s.keys[key] = e.Node
		for dir := path.Dir(key); s.keys[dir] == nil; dir = path.Dir(dir) {
			s.keys[dir] = &node{Key: dir, Dir: true, Modified: s.index, Created: s.index}
		}
	}
	s.events = append(s.events, e)
	s.forgetLocked()
	for told, key := range s.polls {
		if e.concerns(key, true) {
			told <- e
			delete(s.polls, told)
		}
	}
	s.head(w, http.StatusOK, s.index)
	_ = json.NewEncoder(w).Encode(e)
}
