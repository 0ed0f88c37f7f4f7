package patroni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

const (
	// MaxValue bounds the value of a key. Patroni's are some hundreds of bytes, its configuration some thousands.
	MaxValue = 64 << 10

	maxMembers = 1000
	maxTTL     = 24 * 60 * 60
	maxText    = 253 // of a name, a state and so on
)

// A Cluster is what is known of the keys below a scope. Its zero value knows nothing.
type Cluster struct {
	Leader string // the name of the member that leads; "": none does
	Paused bool   // Patroni leaves the cluster alone: see its command pause
	TTL    int    // of the leader's lease, in seconds; 0: not known

	// CheckHost says why HOST:PORT cannot be that of an endpoint; nil: any can. Its errors contain nothing of the text, of which a password may be a part.
	CheckHost func(string) error

	standby bool     // the cluster follows another one, so its leader is no primary
	optime  position // the primary's position, as the key status says it
	version int64    // of that value
	before  int64    // what the version before it said; 0: not known
	members map[string]member
}

// A position in the log of PostgreSQL, in bytes, and the revision of the value that says it.
type position struct {
	at       int64 // 0: not known
	revision int64
}

// A member is the last good value of its key.
type member struct {
	host, api   string // of PostgreSQL, with its port; of the REST API, as scheme, host and port
	state, role string
	position    position
	noBalance   bool
}

// Put notes the value that a key, which is given as it is below the scope, has since a revision, and reports whether that says anything new. The key has
// been written so many times since it was created: its version. After an error nothing has changed.
func (c *Cluster) Put(key string, value []byte, revision, version int64) (changed bool, err error) {
	if len(value) > MaxValue {
		return false, fmt.Errorf("more than %d bytes", MaxValue)
	}
	was := *c
	switch name, isMember := strings.CutPrefix(key, "members/"); {
	case isMember:
		return c.putMember(name, value, revision)
	case key == LeaderKey:
		if c.Leader = strings.TrimSpace(string(value)); len(c.Leader) > maxText {
			c.Leader = was.Leader
			return false, fmt.Errorf("a name of more than %d bytes", maxText)
		}
		return c.Leader != was.Leader, nil
	case key == "status":
		var status *struct{ Optime int64 } // nil after null, which says nothing
		if err := json.Unmarshal(value, &status); err != nil || status == nil {
			return false, errors.New("no JSON object with an optime")
		}
		if c.optime = (position{status.Optime, revision}); c.optime == was.optime {
			return false, nil
		}
		if c.version, c.before = version, 0; version == was.version+1 { // else it was written unseen: the one before is not known
			c.before = was.optime.at
		}
		return true, nil
	case key == "config":
		var config *struct {
			TTL     int
			Pause   bool
			Standby json.RawMessage `json:"standby_cluster"`
		}
		if err := json.Unmarshal(value, &config); err != nil || config == nil {
			return false, errors.New("no JSON object with a ttl and a pause")
		}
		c.TTL, c.Paused, c.standby = min(max(config.TTL, 0), maxTTL), config.Pause, followsAnother(config.Standby)
		return c.TTL != was.TTL || c.Paused != was.Paused || c.standby != was.standby, nil
	}
	return false, nil
}

// followsAnother reports whether a cluster that has this in its configuration is a standby cluster. Patroni asks for one of three settings, too.
func followsAnother(standby json.RawMessage) bool {
	var of map[string]json.RawMessage
	_ = json.Unmarshal(standby, &of) // what is no object names no other cluster
	return truthy(of["host"]) || truthy(of["port"]) || truthy(of["restore_command"])
}

// truthy reports whether Python, which Patroni is written in, takes a JSON value for true.
func truthy(value json.RawMessage) bool {
	var is any
	if err := json.Unmarshal(value, &is); err != nil {
		return len(value) > 0 // a number beyond float64, or no value at all
	}
	switch is := is.(type) {
	case bool:
		return is
	case float64:
		return is != 0
	case string:
		return is != ""
	case []any:
		return len(is) > 0
	case map[string]any:
		return len(is) > 0
	}
	return false
}

func (c *Cluster) putMember(name string, value []byte, revision int64) (changed bool, err error) {
	m, err := readMember(value)
	m.position.revision = revision
	if err == nil && c.CheckHost != nil {
		if bad := c.CheckHost(m.host); bad != nil {
			err = fmt.Errorf("the host of its conn_url cannot be used: %w", bad)
		}
	}
	was, known := c.members[name]
	switch {
	case err != nil:
		return false, err
	case name == "" || len(name) > maxText:
		return false, fmt.Errorf("a name of no or more than %d bytes", maxText)
	case !known && len(c.members) >= maxMembers:
		return false, fmt.Errorf("the cluster has more than %d members", maxMembers)
	case known && m == was:
		return false, nil
	case c.members == nil:
		c.members = make(map[string]member)
	}
	c.members[name] = m
	return true, nil
}

// Delete notes that a key is gone, and reports whether that says anything new.
func (c *Cluster) Delete(key string) (changed bool) {
	name, isMember := strings.CutPrefix(key, "members/")
	switch {
	case isMember:
		_, changed = c.members[name]
		delete(c.members, name)
	case key == LeaderKey:
		changed, c.Leader = c.Leader != "", ""
	case key == "status":
		changed, c.optime, c.version, c.before = c.optime != position{}, position{}, 0, 0
	case key == "config":
		changed, c.TTL, c.Paused, c.standby = c.TTL != 0 || c.Paused || c.standby, 0, false, false
	}
	return changed
}

func readMember(value []byte) (m member, err error) {
	var record struct {
		ConnURL  string `json:"conn_url"`
		APIURL   string `json:"api_url"`
		State    string
		Role     string
		Position int64                      `json:"xlog_location"`
		Tags     map[string]json.RawMessage // whose values may be anything
	}
	if json.Unmarshal(value, &record) != nil {
		return m, errors.New("no JSON object of a member")
	}
	for _, text := range [...]string{record.ConnURL, record.APIURL, record.State, record.Role} {
		if len(text) > 2048 {
			return m, errors.New("a text of more than 2048 bytes")
		}
	}
	m = member{state: record.State, role: record.Role, position: position{at: record.Position}, noBalance: truthy(record.Tags["noloadbalance"]), api: apiOf(record.APIURL)}
	m.host, err = hostOf(record.ConnURL)
	return m, err
}

// hostOf gives host and port of a URL of PostgreSQL.
func hostOf(connURL string) (string, error) {
	if connURL == "" {
		return "", errors.New("no conn_url")
	}
	u, err := url.Parse(connURL)
	switch {
	case strings.Contains(connURL, ","):
		return "", errors.New("its conn_url has several hosts")
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
		return "", errors.New("its conn_url is no URL such as postgres://10.1.2.3:5432/postgres")
	case u.Hostname() == "" || strings.Contains(u.Hostname(), "/"):
		return "", errors.New("its conn_url has no host, or is a socket's")
	case u.Port() == "":
		return net.JoinHostPort(u.Hostname(), "5432"), nil
	}
	return u.Host, nil
}

// apiOf gives scheme, host and port of the URL of a REST API; "" if it cannot be used.
func apiOf(apiURL string) string {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// API gives the REST API of the leader, as scheme, host and port; "" if that is not known.
func (c *Cluster) API() string { return c.members[c.Leader].api }

// A Seat is a member as a service sees it.
type Seat struct {
	Name string
	Host string // with its port
	Out  string // why it does not serve; "": it does
}

// Serving says which members serve by terms, and why others do not, by their names. fallback is true when the primary does so in place of replicas.
func (c *Cluster) Serving(t *Terms) (seats []Seat, fallback bool) {
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		m := c.members[name]
		s := Seat{Name: name, Host: m.host}
		if t.Replicas {
			s.Out = c.whyNotReplica(name, m, t.Lag)
		} else {
			s.Out = c.whyNotPrimary(name, m)
		}
		seats = append(seats, s)
	}
	serves := func(s Seat) bool { return s.Out == "" }
	if !t.Replicas || t.Alone || slices.ContainsFunc(seats, serves) {
		return seats, false
	}
	for i, s := range seats {
		if c.whyNotPrimary(s.Name, c.members[s.Name]) == "" {
			seats[i].Out, fallback = "", true
		}
	}
	return seats, fallback
}

// LeaderKey is the key below a scope whose value names the member that is to be the primary.
const LeaderKey = "leader"

const standbyLeader = "standby_leader"

// roleOf gives the role of a member. The configuration of a standby cluster says at once what its leader is, and the leader's record does so later.
func (c *Cluster) roleOf(name string, m member) string {
	if c.standby && name == c.Leader {
		return standbyLeader
	}
	return m.role
}

func (c *Cluster) whyNotPrimary(name string, m member) string {
	switch {
	case name != c.Leader:
		return "not the leader"
	case c.roleOf(name, m) == standbyLeader:
		return "it leads a standby cluster"
	}
	return ""
}

func (c *Cluster) whyNotReplica(name string, m member, most int64) string {
	switch role := c.roleOf(name, m); {
	case name == c.Leader && role != standbyLeader:
		return "the leader"
	case role != "replica" && role != standbyLeader:
		return "its role is " + quote(role)
	case m.state != "running":
		return "its state is " + quote(m.state)
	case m.noBalance:
		return "it has the tag noloadbalance"
	case most == 0:
		return ""
	case c.optime.at == 0 || m.position.at == 0:
		return "its lag is not known"
	case c.lag(m) > most:
		return fmt.Sprintf("it is %d bytes behind", c.lag(m))
	}
	return ""
}

// lag is how many bytes a member is behind. A record that is older than status is compared with what status said before: the primary writes status
// and then the members their records, so else each burst would make all of them seem to be behind until they have done so.
func (c *Cluster) lag(m member) int64 {
	if m.position.revision < c.optime.revision && c.before != 0 {
		return min(c.before, c.optime.at) - m.position.at
	}
	return c.optime.at - m.position.at
}

// quote shows a word of a record, bounded.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}
