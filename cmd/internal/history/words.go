package history

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// Bounds of what a change lists.
const (
	maxListed   = 4    // ports, or addresses that came, went, or stand by: all sources wait while a change is put into words
	maxCompared = 2000 // of one list, before and after: to compare more takes milliseconds
)

// ofService says what has become of a service.
func ofService(before, after *registry.Service) string {
	switch {
	case before == nil:
		return config.OneLine("none → " + portsOf(after))
	case after == nil:
		return config.OneLine(portsOf(before) + " → none")
	}
	parts := ofLists("", before.Ports, after.Ports, "no port", portText)
	parts = append(parts, ofFields("", reflect.ValueOf(*before.Terms()), reflect.ValueOf(*after.Terms()))...)
	if len(parts) == 0 {
		return "written again, or it is from another source"
	}
	return config.OneLine(strings.Join(parts, "; "))
}

// portsOf lists the ports of a service.
func portsOf(s *registry.Service) string { return inShort(s.Ports, "no port", portText) }

// portText says what a port is, and what sets it apart from others of the service.
func portText(p registry.Port) string {
	var notes []string
	if p.Name != "" {
		notes = append(notes, registry.Label(p.Name))
	}
	if p.Local {
		notes = append(notes, "policy Local")
	}
	if p.Open {
		notes = append(notes, "for any client")
	}
	text := p.ID().String()
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return text
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
	changed := 0
	tell := func(port string, before, after registry.Addrs) {
		if before == after {
			return
		}
		if changed++; changed <= maxListed {
			parts = append(parts, ofAddrs(port, before, after))
		}
	}
	for _, p := range before.ByPort {
		tell(p.Port, p.Addrs, after.Of(p.Port))
	}
	for _, p := range after.ByPort {
		if before.Of(p.Port).Len() == 0 {
			tell(p.Port, registry.Addrs{}, p.Addrs)
		}
	}
	if more := changed - maxListed; more > 0 {
		parts = append(parts, fmt.Sprintf("and of %d more ports", more))
	}
	if before.Weights != after.Weights {
		parts = append(parts, fmt.Sprintf("weights %s → %s", weightsOf(before), weightsOf(after)))
	}
	parts = append(parts, ofLists("backups ", backupsOf(before), backupsOf(after), "none", addrText)...)
	if len(parts) == 0 {
		return "the nodes or zones of endpoints"
	}
	return config.OneLine(strings.Join(parts, "; "))
}

// backupsOf lists the endpoints that stand by.
func backupsOf(e *registry.Endpoints) (all []registry.Addr) {
	for _, p := range e.ByPort {
		if backups := p.Places.Only(registry.Backup); backups != "" {
			i := 0
			for a := range p.Addrs.All() {
				if backups.At(i) != 0 {
					all = append(all, a)
				}
				i++
			}
		}
	}
	return all
}

func weightsOf(e *registry.Endpoints) string {
	if e.Weights == "" {
		return "all alike"
	}
	return registry.Label(string(e.Weights))
}

// ofAddrs says how the addresses of one port changed.
func ofAddrs(port string, before, after registry.Addrs) string {
	label := ""
	if port != "" {
		label = registry.Label(port) + ": "
	}
	count := fmt.Sprintf("%s%d → %d endpoints", label, before.Len(), after.Len())
	if before.Len()+after.Len() > maxCompared {
		return count
	}
	return count + " (" + cameAndWent(before.All(), after.All(), addrText) + ")"
}

func addrText(a registry.Addr) string { return registry.Label(a.String()) }

// ofLists says how a list changed, in short; or which of it came and went, where that is the same before and after. It says nothing if the list
// did not change.
func ofLists[T comparable](what string, before, after []T, none string, text func(T) string) []string {
	if slices.Equal(before, after) {
		return nil
	}
	switch b, a := inShort(before, none, text), inShort(after, none, text); {
	case b != a:
		return []string{what + b + " → " + a}
	case len(before)+len(after) > maxCompared:
		return []string{what + a + ": others than before"}
	default:
		return []string{what + a + ": " + cameAndWent(slices.Values(before), slices.Values(after), text)}
	}
}

// inShort lists the first few of a list.
func inShort[T any](list []T, none string, text func(T) string) string {
	if len(list) == 0 {
		return none
	}
	return few(slices.Values(list), text).String()
}

// cameAndWent says which of a list that has changed came and went.
func cameAndWent[T comparable](before, after iter.Seq[T], text func(T) string) string {
	var parts []string
	if came := few(difference(before, after), text); len(came.first) > 0 {
		parts = append(parts, "came "+came.String())
	}
	if went := few(difference(after, before), text); len(went.first) > 0 {
		parts = append(parts, "went "+went.String())
	}
	if len(parts) == 0 {
		return "in another order"
	}
	return strings.Join(parts, ", ")
}

// Some are the first few of several, in words.
type some struct {
	first []string
	more  int
}

func few[T any](of iter.Seq[T], text func(T) string) (s some) {
	for v := range of {
		if len(s.first) == maxListed {
			s.more++
			continue
		}
		s.first = append(s.first, text(v))
	}
	return s
}

func (s some) String() string {
	text := strings.Join(s.first, ", ")
	if s.more > 0 {
		text += fmt.Sprintf(" and %d more", s.more)
	}
	return text
}

// difference returns what is in the second list alone.
func difference[T comparable](before, after iter.Seq[T]) iter.Seq[T] {
	known := make(map[T]bool)
	for v := range before {
		known[v] = true
	}
	return func(yield func(T) bool) {
		for v := range after {
			if !known[v] && !yield(v) {
				return
			}
		}
	}
}
