package registry

// A hostTable has what an annotation says of addresses, by their hosts, or by host and port.
type hostTable[V any] struct {
	hosts  map[string]V // by host
	places map[string]V // by host and port; they come first
}

func newHostTable[V any]() hostTable[V] {
	return hostTable[V]{hosts: make(map[string]V), places: make(map[string]V)}
}

// placeFor returns where the value of a host, or of a host and port, belongs, and how it is spelt there. An IPv6 address stands in brackets
// before a port.
func (t *hostTable[V]) placeFor(text string) (of map[string]V, key string, err error) {
	if host, err := ParseHost(text); err == nil {
		return t.hosts, host.HostText(), nil
	}
	a, err := ParseAddr(text)
	return t.places, a.String(), err
}

// find returns the value of an address; false if there is none.
func (t *hostTable[V]) find(a Addr) (value V, ok bool) {
	if len(t.places) > 0 {
		if value, ok = t.places[a.String()]; ok {
			return value, true
		}
	}
	value, ok = t.hosts[a.HostText()]
	return value, ok
}

// HostText returns the host of an address, as annotations spell it.
func (a Addr) HostText() string {
	if a.Host != "" {
		return a.Host
	}
	return a.IP.Addr().String()
}
