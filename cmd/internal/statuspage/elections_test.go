package statuspage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// elect has the source know of a key that elects endpoints.
func (s *site) elect(e config.Election) {
	st := &s.sources[0].(*fakeSource).status
	st.Elections = append(st.Elections, e)
	for _, name := range e.Elects {
		if service := s.services[name]; service != nil {
			service.SetTerms(registry.Terms{HolderKey: e.Key})
		}
	}
}

// TestThePageShowsTheKeysThatElect, and has no section of them where there are none.
func TestThePageShowsTheKeysThatElect(t *testing.T) {
	s := newSite(1)
	if page := get(t, s.page(t), "/").Body.String(); strings.Contains(page, "h-elections") || elementText(t, page, "elections") != "" {
		t.Error("there is no election, and a section of them")
	}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.Local)
	e := config.Election{Key: "/service/pg/leader", Holder: "m2", Services: `"pg", "pg-ro"`, Count: 1234, Paused: true, LeftOut: 30, Unusable: 9,
		Changes: []config.HolderChange{{Holder: "m1", Revision: 7, At: at}, {Revision: 8, At: at}, {Holder: "m2", Revision: 9, At: at}}}
	for i := range 20 {
		e.Out, e.Rejected = append(e.Out, fmt.Sprintf("pg-ro: r%d: it starts", i)), append(e.Rejected, fmt.Sprintf("k%d: no JSON", i))
	}
	s.elect(e)
	s.elect(config.Election{Key: "/lock", Services: `"pair"`})
	s.elect(config.Election{Key: "/asked/leader", Holder: "m3", Unconfirmed: true})
	text := elementText(t, get(t, s.page(t), "/").Body.String(), "elections")
	for _, want := range []string{
		"/service/pg/leader paused m2 since 2020-01-02 03:04:05 (revision 9) left out: pg-ro: r0: it starts", "left out: pg-ro: r7: it starts and 22 more that are left out",
		"cannot be used: k7: no JSON and 1 more that cannot be used", `"pg", "pg-ro" 1,234 since the start 2020-01-02 03:04:05 m2, revision 9 2020-01-02 03:04:05 nobody, revision 8 2020-01-02 03:04:05 m1, revision 7`,
		`/lock nobody since an unknown time "pair" 0 since the start`, "/asked/leader m3 since an unknown time, not confirmed while etcd is away",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the section says %q; want %q in it", text, want)
		}
	}
}

// TestAnUnheldKeyIsNamedInPlaceOfEmptyEndpoints: to write endpoints, which the sentence of others advises, would be wrong. The report of the service has
// the sentence, too.
func TestAnUnheldKeyIsNamedInPlaceOfEmptyEndpoints(t *testing.T) {
	s := newSite(0)
	web := registry.Name{Namespace: "default", Name: "web"}
	key := s.add(web, 1000)
	s.endpoints[key] = nil
	for want, e := range map[string]config.Election{
		"Nobody holds key /lock since an unknown time: clients of default/web are refused":                {Key: "/lock"},
		"Etcd is away, and m1, which has key /lock, does not confirm that it is the primary: clients of ": {Key: "/lock", Holder: "m1", Unconfirmed: true},
	} {
		e.Elects = []registry.Name{web}
		for _, came := range []uint64{0, 1} {
			s.totals[0].Ended[traffic.NoEndpoints] = came
			s.sources[0].(*fakeSource).status.Elections = nil
			s.elect(e)
			r := s.page(t).Report()
			if len(r.Problems) != 1 || !strings.HasPrefix(r.Verdict, want) {
				t.Errorf("after %d clients the problems are %q; want %q", came, r.Problems, want)
			}
			if r, ok := s.page(t).ReportOf(web); !ok || len(r.Problems) != 1 || r.Problems[0] != s.page(t).Report().Verdict {
				t.Errorf("those of the service are %q", r.Problems)
			}
			held := &s.sources[0].(*fakeSource).status.Elections[0]
			held.Holder, held.Unconfirmed = "m1", false
			if r := s.page(t).Report(); len(r.Problems) != 1 || !strings.HasPrefix(r.Verdict, "Key /lock gives default/web no endpoints, and ") {
				t.Errorf("when the key is held, the problems are %q", r.Problems)
			}
		}
	}
}
