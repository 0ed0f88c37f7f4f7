package recordtext

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"kubeproxy/config"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

// A Field is one field of a record that the proxy reads: what is in force, and what a refused value says.
type Field struct {
	Name             string
	InForce, Refused string // "" where it is not set
	Differs          bool
}

// A Refused value is the newest one of a key, and is not in force.
type Refused struct {
	Key, Reason string
	Revision    int64
	Value       string  // "" if it is not known
	Fields      []Field // beside what is in force; none if that cannot be said
}

// Compare compares a refused value with the service that is in force, nil if there is none.
func Compare(r config.Rejection, service *registry.Service) Refused {
	v := Refused{Key: r.Key, Reason: r.Reason, Revision: r.Revision, Value: r.Value}
	said, ok := fieldsOfValue(r.Value)
	if service == nil || r.Kind != registry.KindService || !ok {
		return v
	}
	inForce := fieldsOf(service, said)
	names := slices.Collect(maps.Keys(inForce))
	for name := range said {
		if _, ok := inForce[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxFields)] {
		f := Field{Name: name, InForce: inForce[name], Refused: said[name]}
		f.Differs = !strings.EqualFold(f.InForce, f.Refused) // protocols are written in any case
		v.Fields = append(v.Fields, f)
	}
	return v
}

// maxPorts bounds the ports and ranges that are shown of one record.
const maxPorts = 50

// maxFields bounds the fields that are shown of one record.
const maxFields = 100

// readFields are the fields of a service that the proxy reads, at the top of a flat record and below spec in a nested one.
var readFields = []string{"port", "protocol", "portName", "ports", "sessionAffinity", "sessionAffinityConfig", "loadBalancerSourceRanges",
	"portalIP", "clusterIP", "type"}

// fieldsOfValue lists the fields of a value in JSON that the proxy reads, by their paths. It reports whether the value is a JSON object.
func fieldsOfValue(value string) (fields map[string]string, ok bool) {
	var object map[string]any
	if json.Unmarshal([]byte(value), &object) != nil || object == nil {
		return nil, false
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		object = spec
	}
	fields = make(map[string]string)
	for _, name := range readFields {
		if v, ok := object[name]; ok {
			flatten(fields, name, v)
		}
	}
	return fields, true
}

// flatten adds a JSON value by its path.
func flatten(fields map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			flatten(fields, path+"."+registry.Label(name), child)
		}
	case []any:
		for i, child := range v {
			flatten(fields, fmt.Sprintf("%s[%d]", path, i), child)
		}
	case string:
		fields[path] = v
	default:
		if text, err := json.Marshal(v); err == nil { // it was JSON before
			fields[path] = string(text)
		}
	}
}

// fieldsOf lists the fields of a service in the way that a value writes them. What a record may leave out is listed only if the
// value says it.
func fieldsOf(s *registry.Service, said map[string]string) map[string]string {
	fields := make(map[string]string)
	ports, _ := portsOf(s)
	if _, single := said["port"]; single && len(ports) == 1 {
		p := ports[0]
		fields["port"] = fmt.Sprint(p.Number)
		set(fields, said, "protocol", p.Protocol.String(), p.Protocol == registry.TCP)
		set(fields, said, "portName", p.Name, p.Name == "")
	} else {
		for i, p := range ports[:min(len(ports), maxPorts)] {
			path := fmt.Sprintf("ports[%d].", i)
			fields[path+"port"] = fmt.Sprint(p.Number)
			set(fields, said, path+"protocol", p.Protocol.String(), p.Protocol == registry.TCP)
			set(fields, said, path+"name", p.Name, p.Name == "")
		}
	}
	terms := s.Terms()
	set(fields, said, "sessionAffinity", terms.Affinity.String(), terms.Affinity == registry.AffinityNone)
	for i, r := range terms.SourceRanges[:min(len(terms.SourceRanges), maxPorts)] {
		fields[fmt.Sprintf("loadBalancerSourceRanges[%d]", i)] = r.String()
	}
	return fields
}

// portsOf returns the ports of a service as its record lists them, and the value of the annotation that says at which addresses each of them
// is; "" if they are at the node.
func portsOf(s *registry.Service) (ports []registry.Port, listen string) {
	var addrs []string
	for _, p := range s.Ports {
		at := "node"
		if p.Addr.IsValid() {
			at = p.Addr.String()
		}
		if !slices.Contains(addrs, at) {
			addrs = append(addrs, at)
		}
		if p.Addr = (netip.Addr{}); len(ports) == 0 || ports[len(ports)-1] != p { // those of one port follow each other
			ports = append(ports, p)
		}
	}
	if len(addrs) == 0 || len(addrs) == 1 && addrs[0] == "node" {
		return ports, ""
	}
	return ports, strings.Join(addrs, ",")
}

// set sets a field, unless it has its default and the other side leaves it out.
func set(fields, said map[string]string, name, value string, isDefault bool) {
	if _, ok := said[name]; ok || !isDefault {
		fields[name] = value
	}
}

// Service writes what is in force of a service, as a record of v1beta1 with the ports of v0.15.
func Service(s *registry.Service) string {
	type port struct {
		Name     string `json:"name,omitempty"`
		Protocol string `json:"protocol"`
		Port     uint16 `json:"port"`
	}
	record := struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		ID         string   `json:"id"`
		Ports      []port   `json:"ports"`
		Affinity   string   `json:"sessionAffinity,omitempty"`
		Ranges     []string `json:"loadBalancerSourceRanges,omitempty"`

		Annotations map[string]string `json:"annotations,omitempty"`
	}{Kind: "Service", APIVersion: "v1beta1", ID: s.Name.Name, Ports: []port{}}
	ports, listen := portsOf(s)
	for _, p := range ports[:min(len(ports), maxPorts)] {
		record.Ports = append(record.Ports, port{p.Name, strings.ToUpper(p.Protocol.String()), p.Number})
	}
	terms := s.Terms()
	if terms.Affinity != registry.AffinityNone {
		record.Affinity = terms.Affinity.String()
	}
	for _, from := range terms.SourceRanges[:min(len(terms.SourceRanges), maxPorts)] {
		record.Ranges = append(record.Ranges, from.String())
	}
	record.Annotations = maps.Collect(terms.Said())
	if listen != "" {
		record.Annotations[registry.ListenAnnotation] = listen
	}
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A Subset is the endpoints in force of one port name.
type Subset struct {
	Port      string   `json:"port,omitempty"`
	Endpoints []string `json:"endpoints"`
	More      int      `json:"more,omitempty"` // that are not listed
	weights   []string // those that are not 1, as the annotation spells them
	backups   []string // those that stand by
}

// NewSubset returns the endpoints of a port: n, of which the first are listed.
func NewSubset(port string, first []rotation.EndpointStatus, n int) Subset {
	one := Subset{Port: port, Endpoints: []string{}, More: n - len(first)}
	for _, e := range first {
		one.Endpoints = append(one.Endpoints, e.Addr.String())
		if e.Weight != 1 {
			one.weights = append(one.weights, fmt.Sprintf("%v=%d", e.Addr, e.Weight))
		}
		if e.Place&registry.Backup != 0 {
			one.backups = append(one.backups, e.Addr.String())
		}
	}
	return one
}

// Endpoints writes the endpoints in force, whichever records they come from: for one port without a name as a record of v0.4.
func Endpoints(name registry.Name, subsets []Subset) string {
	var weights, backups []string
	for _, s := range subsets {
		weights, backups = append(weights, s.weights...), append(backups, s.backups...)
	}
	annotations := make(map[string]string)
	for name, values := range map[string][]string{registry.WeightAnnotation: weights, registry.BackupAnnotation: backups} {
		slices.Sort(values)
		if values = slices.Compact(values); len(values) > 0 { // an endpoint that serves several ports is in several subsets
			annotations[name] = strings.Join(values, ",")
		}
	}
	var record any = struct {
		ID          string            `json:"id"`
		Subsets     []Subset          `json:"ports"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{name.Name, subsets, annotations}
	switch {
	case len(subsets) == 0:
		return ""
	case len(subsets) == 1 && subsets[0].Port == "":
		record = struct {
			Kind       string `json:"kind"`
			APIVersion string `json:"apiVersion"`
			ID         string `json:"id"`
			Subset
			Annotations map[string]string `json:"annotations,omitempty"`
		}{"Endpoints", "v1beta1", name.Name, subsets[0], annotations}
	}
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
