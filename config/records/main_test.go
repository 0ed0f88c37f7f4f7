package records

import (
	"testing"

	"kubeproxy/config/records/recordstest"
)

func TestMain(m *testing.M) { recordstest.Main(m) }

// The records of the tests.
var (
	spec = recordstest.Spec
	port = recordstest.Port
)

// v is a value of the service a: created and written at these revisions.
func v(created, revision int64, value string) Version {
	return Version{Key: []byte(spec("a")), Created: created, Revision: revision, Value: []byte(value)}
}

// bigRegistry is one of n services with endpoints, of the usual size.
func bigRegistry(n int) []Version {
	var all []Version
	for i, r := range recordstest.Registry(n) {
		all = append(all, Version{Key: []byte(r.Key), Value: []byte(r.Value), Created: int64(i + 2), Revision: int64(i + 2)})
	}
	return all
}

// listOf is a list of which everything is kept, whatever is known.
func listOf(versions ...Version) (l List) {
	l.Add(versions)
	return l
}

// sifted is a list of which only the news is kept.
func (s *State) sifted(versions ...Version) List {
	l := s.NewList(len(versions))
	l.Add(versions)
	return l
}
