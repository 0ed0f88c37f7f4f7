package rotation

import "slices"

// MaxOffers is how many endpoints a client is offered. Sixteen failures in a row mean an outage. The bound limits what one client can cost when
// a record lists thousands of endpoints without a route. Each endpoint that failed is ejected, so the next clients are offered others.
const MaxOffers = 16

// Offers are the endpoints that one client was offered.
type offers struct {
	n       int         // how many
	earlier []*Endpoint // all but the last
	last    *Endpoint
}

func (o *offers) add(e *Endpoint) {
	if o.last != nil {
		o.earlier = append(o.earlier, o.last)
	}
	o.last = e
	o.n++
}

// withdraw takes the last offer back.
func (o *offers) withdraw() {
	o.last = nil
	if n := len(o.earlier); n > 0 {
		o.last, o.earlier = o.earlier[n-1], o.earlier[:n-1]
	}
	o.n--
}

func (o *offers) has(e *Endpoint) bool { return e == o.last || slices.Contains(o.earlier, e) }
