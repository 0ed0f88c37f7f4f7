package control

import (
	"net/http"
	"slices"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

// Names is the answer about what there is: services, or the endpoints of one.
type Names struct {
	Names []string `json:"names"`
}

// names lists the services that own ports or have endpoints, by name; with service=NAME the addresses of its endpoints, and with endpoints=true those
// of all services.
func (n Node) names(r *http.Request) (any, error) {
	q := r.URL.Query()
	text := q.Get("service")
	answer := Names{Names: []string{}}
	if text == "" && q.Get("endpoints") == "" {
		for r := range n.Endpoints.RotationStatus() {
			answer.Names = append(answer.Names, r.Service.Name.Label())
		}
		return answer.sorted(), nil
	}
	all := n.Endpoints.Status
	if text != "" {
		name, err := nameOf(text)
		if err != nil {
			return nil, err
		}
		all = func() []rotation.EndpointStatus { return n.Endpoints.StatusOf(name) }
	}
	for _, e := range all() {
		answer.Names = append(answer.Names, registry.Label(e.Addr.String()))
	}
	return answer.sorted(), nil
}

func (n Names) sorted() Names {
	slices.Sort(n.Names)
	n.Names = slices.Compact(n.Names)
	return n
}
