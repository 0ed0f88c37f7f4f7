// Package names has the names that records give to endpoints. A key elects endpoints by them: see [kubeproxy/registry.Terms].
package names

import (
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// Annotation gives names to the endpoints of an Endpoints record or an EndpointSlice.
const Annotation = registry.AnnotationPrefix + "names"

// Names are those of endpoints, by their hosts, or by host and port: HOST=NAME and HOST:PORT=NAME, sorted, with commas between. A name
// of HOST:PORT comes before that of HOST. Two that say the same are equal.
type Names string

// Parse reads the annotation. An IPv6 address stands in brackets before a port.
func Parse(annotation string) (Names, error) {
	all := make(map[string]string)
	for entry := range strings.SplitSeq(annotation, ",") {
		host, name, _ := strings.Cut(strings.TrimSpace(entry), "=")
		a, err := registry.ParseHost(host)
		key := a.HostText()
		if err != nil {
			a, err = registry.ParseAddr(host)
			key = a.String()
		}
		switch _, again := all[key]; {
		case err != nil || name == "" || len(name) > registry.MaxName:
			return "", fmt.Errorf("annotation %s: %s is no name of an address, such as 10.1.2.3=m1, 10.1.2.3:80=m1 or [fd00::3]:80=m1", Annotation, registry.Quote(entry))
		case again:
			return "", fmt.Errorf("annotation %s: %s has two names", Annotation, registry.Quote(host))
		}
		all[key] = name
	}
	return spell(all), nil
}

func spell(all map[string]string) Names {
	var entries []string
	for key, name := range all {
		entries = append(entries, key+"="+name)
	}
	slices.Sort(entries)
	return Names(strings.Join(entries, ","))
}

func (n Names) addTo(all map[string]string) {
	for entry := range strings.SplitSeq(string(n), ",") {
		if key, name, ok := strings.Cut(entry, "="); ok {
			all[key] = name
		}
	}
}

// Join returns the names of several records. Of two names of one host, or of one host and port, that of the later record counts.
func Join(parts ...Names) Names {
	all := make(map[string]string)
	for _, n := range parts {
		n.addTo(all)
	}
	return spell(all)
}

// Of returns the names of addresses: "" of one that has none.
func (n Names) Of() func(registry.Addr) string {
	all := make(map[string]string)
	n.addTo(all)
	return func(a registry.Addr) string {
		if name, ok := all[a.String()]; ok {
			return name
		}
		return all[a.HostText()]
	}
}
