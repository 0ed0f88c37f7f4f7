package commandline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// maxNamed is how many services a flag may name: each has series of its own in /metrics.
const maxNamed = 100

// Services is a flag that chooses services: all without a value or with true, none with false, else those that are named. Each use of the flag
// adds to the names.
type Services struct {
	All   bool
	Named []registry.Name
}

// None reports whether no service is chosen.
func (s *Services) None() bool { return !s.All && len(s.Named) == 0 }

func (s *Services) Set(text string) error {
	if text == "true" || text == "false" {
		*s = Services{All: text == "true"}
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		name, err := registry.ParseName(strings.TrimSpace(item))
		if err != nil {
			return errors.New("want services, such as web,team-a/db")
		}
		if !slices.Contains(s.Named, name) {
			s.Named = append(s.Named, name)
		}
	}
	if len(s.Named) > maxNamed {
		return fmt.Errorf("names %d services; want %d at most", len(s.Named), maxNamed)
	}
	s.All = false
	return nil
}

func (s *Services) String() string {
	if s.All || len(s.Named) == 0 {
		return fmt.Sprint(s.All)
	}
	var items []string
	for _, name := range s.Named {
		items = append(items, name.Label())
	}
	return strings.Join(items, ",")
}

func (s *Services) Type() string { return "services" }

// IsList says that the flag may have several values.
func (s *Services) IsList() {}
