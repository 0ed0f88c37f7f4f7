package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

func TestClaimsKeepTheirOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{3, fewClaims, 50} {
		var cs claims
		var model []*engine.Claim
		for range 5000 {
			name := registry.Name{Namespace: "default", Name: fmt.Sprint(random.IntN(most))}
			at := slices.IndexFunc(model, func(c *engine.Claim) bool { return c.Key.Name == name })
			had := cs.find(name)
			if (had == nil) != (at < 0) || at >= 0 && model[at] != had {
				t.Fatalf("found %v; want that at %d of %v", had, at, model)
			}
			c := &engine.Claim{Key: registry.PortKey{Name: name}}
			switch {
			case at < 0:
				cs.add(c)
				model = append(model, c)
			case random.IntN(3) == 0:
				cs.replace(had, c)
				model[at] = c
			default:
				cs.remove(had)
				model = slices.Delete(model, at, at+1)
			}
			if got := slices.Collect(cs.all()); !slices.Equal(got, model) || cs.n != len(model) {
				t.Fatalf("%d claims %v; want %v", cs.n, got, model)
			}
			if cs.first != nil && (cs.first != model[0] || cs.last != model[len(model)-1]) {
				t.Fatal("first or last is another one")
			}
		}
	}
}
