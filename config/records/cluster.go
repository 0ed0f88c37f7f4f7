package records

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/golang/glog"

	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// How the members of a cluster of Patroni are the endpoints of services: package patroni reads its keys, and says who serves.

// setMember notes a change of a key of a cluster, and reports whether it says anything that was not known.
func (s *State) setMember(e *election, h Holder) (different bool) {
	key := strings.TrimPrefix(h.Key, e.key)
	was := e.present[key]
	switch {
	case was == nil && h.Gone:
		return false
	case h.Gone:
		delete(e.present, key)
		different = e.cluster.Delete(key) || was.bad != ""
	default:
		if was == nil {
			was = new(presence)
			e.present[key] = was
		}
		var over bool // another life has begun, so what was good in the one before ends
		if was.created != h.Created {
			over = e.cluster.Delete(key)
		}
		was.created, was.seen = h.Created, h.Seen
		var err error
		if different, err = e.cluster.Put(key, []byte(h.Value), h.Seen, h.Version); err != nil {
			different = s.blame(e, was, h, err) || over
		} else if was.bad != "" {
			was.bad, different = "", true
			glog.Infof("key %s can be used again, since revision %d", registry.Quote(h.Key), h.Seen)
		}
	}
	if different {
		s.clusterChanged(e, h.Seen)
	}
	return different
}

// blame logs once that a value cannot be used, and reports whether that is news.
func (s *State) blame(e *election, p *presence, h Holder, err error) bool {
	sum := maphash.String(s.seed, h.Value)
	if p.bad != "" && p.sum == sum {
		return false
	}
	p.sum, p.bad = sum, err.Error()
	if note, ok := s.complaints.Allow(complaint{key: h.Key, sum: sum}); ok {
		glog.Errorf("key %s cannot be used: %v, at revision %d; what it said before stays, if anything, for %s%s", registry.Quote(h.Key), err, h.Seen, e.forServices(), note)
	}
	return true
}

// clusterChanged has services have other endpoints, if so the cluster says, once it is known. revision is that of the change.
func (s *State) clusterChanged(e *election, revision int64) {
	if s.elected = true; !e.known {
		return
	}
	if name := e.cluster.Leader; name != e.holder {
		e.holder = name
		if p := e.present[patroni.LeaderKey]; p != nil {
			revision = p.seen
		}
		s.elects(e, e.key+patroni.LeaderKey, name, revision)
	}
	s.touch(e)
}

// mergeMembers makes a cluster equal to a list.
func (s *State) mergeMembers(e *election, says []Holder, revision int64, touched map[string]int64, differs func(key string, since int64)) {
	known := e.known
	note := func(h Holder) {
		if touched[h.Key] <= revision && s.setMember(e, h) && known {
			differs(h.Key, h.Seen)
		}
	}
	gone := maps.Clone(e.present)
	for _, h := range says {
		delete(gone, strings.TrimPrefix(h.Key, e.key))
		note(h)
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		note(Holder{Key: e.key + key, Gone: true, Seen: revision})
	}
	if !known {
		e.known, e.holder = true, unknown
		s.clusterChanged(e, revision)
	}
}

// unknown is the holder of a cluster before it is known: no member has this name.
const unknown = "/"

// checkHost says why HOST:PORT is no endpoint. The cluster asks as it reads a member: else one that no client can have would count as a fit replica.
func checkHost(host string) error {
	_, err := registry.ParseAddr(host)
	return err
}

// members returns the endpoints that a cluster gives a service.
func (s *State) members(name registry.Name, e *election) *registry.Endpoints {
	is := &registry.Endpoints{Name: name}
	service := s.record(registry.SpecsPrefix, name).service
	if service == nil || len(service.Ports) == 0 {
		return is
	}
	terms := &service.Terms().Patroni
	seats, fallback := e.cluster.Serving(terms)
	var serve []registry.Addr
	has := make(map[registry.Addr]bool) // no list may have an address twice, as two names of one member would
	var out Tally
	for _, seat := range seats {
		addr, _ := registry.ParseAddr(seat.Host) // always works: see checkHost
		switch {
		case seat.Out != "":
			out.Add(fmt.Sprintf("%s: %s", seat.Name, seat.Out))
		case !has[addr]:
			has[addr] = true
			serve = append(serve, addr)
		}
	}
	if len(serve) > 0 {
		is.ByPort = []registry.PortAddrs{{Port: service.Ports[0].Name, Addrs: registry.NewAddrs(serve...)}}
	}
	if !is.Equal(s.endpoints[name]) && (fallback || len(serve) == 0 && e.cluster.Leader != "") {
		s.warnOfMembers(name, e, fallback, out)
	}
	return is
}

// warnOfMembers logs that the members of a cluster serve otherwise than a service asks.
func (s *State) warnOfMembers(name registry.Name, e *election, fallback bool, out Tally) {
	note, ok := s.complaints.Allow(complaint{key: name.String() + " " + e.key})
	switch {
	case !ok:
	case fallback:
		glog.Warningf("endpoints of %v: the primary serves, for no replica of %s is fit (%s)%s", name, registry.Quote(e.key), out, note)
	default:
		glog.Warningf("endpoints of %v: no member of %s serves; its leader is %s (%s)%s", name, registry.Quote(e.key), registry.Quote(e.cluster.Leader), out, note)
	}
}
