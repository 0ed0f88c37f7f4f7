package history

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// Bounds of what a change lists.
const (
	maxAddrs    = 4    // that came, went, or stand by
	maxCompared = 2000 // addresses of one port, before and after: to compare more takes milliseconds
)

// ofService says what has become of a service.
func ofService(before, after *registry.Service) string {
	switch {
	case before == nil:
		return config.OneLine("none → " + portsOf(after))
	case after == nil:
		return config.OneLine(portsOf(before) + " → none")
	}
	var parts []string
	if b, a := portsOf(before), portsOf(after); b != a {
		parts = append(parts, b+" → "+a)
	}
	parts = append(parts, ofFields("", reflect.ValueOf(*before.Terms()), reflect.ValueOf(*after.Terms()))...)
	if len(parts) == 0 {
		return "written again, or it is from another source"
	}
	return config.OneLine(strings.Join(parts, "; "))
}

// portsOf lists the ports of a service.
func portsOf(s *registry.Service) string {
	var ports []string
	for i, p := range s.Ports {
		if i == maxAddrs {
			ports = append(ports, fmt.Sprintf("and %d more", len(s.Ports)-i))
			break
		}
		text := p.ID().String()
		if p.Name != "" {
			text += " (" + registry.Label(p.Name) + ")"
		}
		ports = append(ports, text)
	}
	if len(ports) == 0 {
		return "no port"
	}
	return strings.Join(ports, ", ")
}

// ofFields says which fields of two structs differ, by their names in words.
func ofFields(path string, before, after reflect.Value) (parts []string) {
	for i := range before.NumField() {
		field := before.Type().Field(i)
		b, a := before.Field(i), after.Field(i)
		switch {
		case !field.IsExported() || reflect.DeepEqual(b.Interface(), a.Interface()):
		case field.Type.Kind() == reflect.Struct && !field.Type.Implements(stringer):
			parts = append(parts, ofFields(path+inWords(field.Name)+" ", b, a)...)
		default:
			parts = append(parts, fmt.Sprintf("%s%s %s → %s", path, inWords(field.Name), shown(b), shown(a)))
		}
	}
	return parts
}

var stringer = reflect.TypeFor[fmt.Stringer]()

// shown is a value of a field, as the record spells it.
func shown(v reflect.Value) string {
	if v.IsZero() {
		return "none"
	}
	return registry.Label(fmt.Sprintf("%v", v.Interface()))
}

// inWords spells "AffinityTimeout" as "affinity timeout".
func inWords(name string) string {
	var words strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	return words.String()
}

// ofEndpoints says which addresses came and went, and what else is different.
func ofEndpoints(before, after *registry.Endpoints) string {
	if before == nil {
		before = new(registry.Endpoints)
	}
	if after == nil {
		after = new(registry.Endpoints)
	}
	var parts []string
	for _, p := range before.ByPort {
		parts = append(parts, ofAddrs(p.Port, p.Addrs, after.Of(p.Port))...)
	}
	for _, p := range after.ByPort {
		if before.Of(p.Port).Len() == 0 {
			parts = append(parts, ofAddrs(p.Port, registry.Addrs{}, p.Addrs)...)
		}
	}
	if before.Weights != after.Weights {
		parts = append(parts, fmt.Sprintf("weights %s → %s", weightsOf(before), weightsOf(after)))
	}
	if b, a := backupsOf(before), backupsOf(after); b != a {
		parts = append(parts, "backups "+b+" → "+a)
	}
	if len(parts) == 0 {
		return "the nodes or zones of endpoints"
	}
	return config.OneLine(strings.Join(parts, "; "))
}

// backupsOf lists the endpoints that stand by.
func backupsOf(e *registry.Endpoints) string {
	var s some
	for _, p := range e.ByPort {
		if backups := p.Places.Only(registry.Backup); backups != "" {
			i := 0
			for a := range p.Addrs.All() {
				if backups.At(i) != 0 {
					s.add(a)
				}
				i++
			}
		}
	}
	if len(s.first) == 0 {
		return "none"
	}
	return s.String()
}

func weightsOf(e *registry.Endpoints) string {
	if e.Weights == "" {
		return "all alike"
	}
	return registry.Label(string(e.Weights))
}

// ofAddrs says how the addresses of one port changed; nothing if they did not.
func ofAddrs(port string, before, after registry.Addrs) []string {
	if before == after {
		return nil
	}
	label := ""
	if port != "" {
		label = registry.Label(port) + ": "
	}
	count := fmt.Sprintf("%s%d → %d endpoints", label, before.Len(), after.Len())
	if before.Len()+after.Len() > maxCompared {
		return []string{count}
	}
	came, went := difference(before, after), difference(after, before)
	var parts []string
	if len(came.first) > 0 {
		parts = append(parts, "came "+came.String())
	}
	if len(went.first) > 0 {
		parts = append(parts, "went "+went.String())
	}
	if len(parts) == 0 {
		return []string{count + " (in another order)"}
	}
	return []string{count + " (" + strings.Join(parts, ", ") + ")"}
}

// Some addresses are the first few of several.
type some struct {
	first []string
	more  int
}

func (s *some) add(a registry.Addr) {
	if len(s.first) == maxAddrs {
		s.more++
		return
	}
	s.first = append(s.first, registry.Label(a.String()))
}

func (s some) String() string {
	text := strings.Join(s.first, ", ")
	if s.more > 0 {
		text += fmt.Sprintf(" and %d more", s.more)
	}
	return text
}

// difference returns the addresses that are in the second list alone.
func difference(before, after registry.Addrs) (s some) {
	known := make(map[registry.Addr]bool, before.Len())
	for a := range before.All() {
		known[a] = true
	}
	for a := range after.All() {
		if !known[a] {
			s.add(a)
		}
	}
	return s
}
