package patroni

import (
	"errors"
	"strconv"
	"strings"
)

// Terms say which members of a cluster are the endpoints of a service. Zero Terms say that none are.
type Terms struct {
	Scope    string // of the cluster
	Replicas bool   `json:",omitzero"` // the endpoints are those that follow the primary, and not the primary
	Lag      int64  `json:",omitzero"` // how many bytes a replica may be behind; 0: any number
	Alone    bool   `json:",omitzero"` // while no replica is fit there is no endpoint; else the primary is
	Ask      bool   `json:",omitzero"` // while etcd is away the primary is asked whether it still is

	Unpromoted bool `json:",omitzero"` // a new primary is asked whether it is promoted, and serves once it is
}

// ReadScope reads the scope. It may not have what a key would be read differently by.
func (t *Terms) ReadScope(s string) error {
	const most = 253
	if s == "" || len(s) > most || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '/' || r == '?' || r > '~' }) {
		return errors.New("is no scope of Patroni")
	}
	t.Scope = s
	return nil
}

var units = [...]struct { // as PostgreSQL has them
	name  string
	bytes int64
}{{"GB", 1 << 30}, {"MB", 1 << 20}, {"kB", 1 << 10}, {"", 1}}

// ReadLag reads a number of bytes, such as 16MB.
func (t *Terms) ReadLag(s string) error {
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			if count, err := strconv.ParseInt(n, 10, 32); err == nil && count > 0 && n == strconv.FormatInt(count, 10) {
				t.Lag = count * u.bytes
				return nil
			}
		}
	}
	return errors.New("is no number of bytes, such as 500kB, 16MB or 1GB")
}

// ShowLag gives the lag in the largest unit that has it whole; "" for any lag.
func (t *Terms) ShowLag() string {
	for _, u := range units {
		if t.Lag > 0 && t.Lag%u.bytes == 0 {
			return strconv.FormatInt(t.Lag/u.bytes, 10) + u.name
		}
	}
	return ""
}

// Role gives the role that the endpoints have.
func (t *Terms) Role() string {
	switch {
	case t.Scope == "":
		return ""
	case t.Replicas:
		return "replica"
	}
	return "primary"
}

// Problem says what does not go together. hasRole and hasKey say whether the record has a role, and names a key itself.
func (t *Terms) Problem(hasRole, hasKey bool) error {
	switch {
	case t.Scope != "" && hasKey:
		return errors.New("annotations kube-proxy/holder-key and kube-proxy/patroni: one of them elects the endpoints")
	case t.Scope == "" && (hasRole || *t != Terms{}):
		return errors.New("annotations kube-proxy/patroni-… mean nothing without kube-proxy/patroni")
	case t.Scope != "" && !hasRole:
		return errors.New("annotation kube-proxy/patroni needs kube-proxy/patroni-role: primary or replica")
	case !t.Replicas && (t.Lag > 0 || t.Alone):
		return errors.New("annotations kube-proxy/patroni-lag and patroni-fallback are for replicas")
	}
	return nil
}

// AsksPrimary reports whether the primary is asked, while etcd is away or before it is promoted: a service of replicas has none.
func (t *Terms) AsksPrimary() bool { return (t.Ask || t.Unpromoted) && !t.Replicas }

// AsksStale reports whether the primary is asked while etcd is away.
func (t *Terms) AsksStale() bool { return t.Ask && !t.Replicas }

// IsPrimary reports whether a role, as the REST API of a member says it, is that of a primary that takes writes. Patroni 4 has another word for it than 3.
func IsPrimary(role string) bool { return role == "primary" || role == "master" }
