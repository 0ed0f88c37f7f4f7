package control

import (
	"errors"
	"net/http"

	"kubeproxy/registry"
)

// EndpointPath is the page of -metrics_bind_address by which other machines ask whether an endpoint may go: ?endpoint=HOST:PORT, or HOST.
const EndpointPath = "/endpointz"

// An Endpoint is what a node says of one endpoint.
type Endpoint struct {
	Node     string `json:"node"`
	Endpoint string `json:"endpoint"`
	Clients  int64  `json:"clients"`  // that this node carries to it
	Revision int64  `json:"revision"` // of the registry, up to which it was received
	Pending  bool   `json:"pending"`  // not all up to the revision is in force yet
}

// EndpointPage answers for a node with this name. InForce returns the revision up to which the registry was received, and whether all of that is in force.
func (n Node) EndpointPage(name string, inForce func() (revision int64, all bool)) http.Handler {
	asking := make(chan struct{}, 2) // while the node hands over they wait, and other pages are to have room
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, func(r *http.Request) (any, error) {
			text := r.URL.Query().Get("endpoint")
			match, err := registry.ParseAddrMatch(text)
			if err != nil {
				return nil, badRequest("invalid endpoint %s: %v", registry.Quote(text), err)
			}
			select {
			case asking <- struct{}{}:
				defer func() { <-asking }()
			default:
				return nil, unavailable(errors.New("two others are asking: ask again"))
			}
			revision, all := inForce() // before the clients are counted, so that those are counted who were given the endpoint by an older revision
			left, err := n.Proxier.ClientsOf(registry.Name{}, match)
			if err != nil {
				return nil, failure{http.StatusConflict, err}
			}
			return Endpoint{Node: name, Endpoint: registry.Label(text), Clients: left, Revision: revision, Pending: !all}, nil
		})
	})
}
