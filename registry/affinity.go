package registry

import (
	"fmt"
	"time"
)

// An Affinity says whether a client should come back to the endpoint it had.
type Affinity uint8

// The session affinities of the stored formats since v0.8.
const (
	AffinityNone Affinity = iota
	AffinityClientIP
)

// How long a client is remembered: Kubernetes' default, and the longest time that it accepts.
const (
	defaultAffinityTimeout = 3 * time.Hour
	maxAffinityTimeout     = 24 * time.Hour
)

// String gives the affinity as the records spell it.
func (a Affinity) String() string {
	if a == AffinityClientIP {
		return "ClientIP"
	}
	return "None"
}

// affinity reads what the service is to do about clients that come back. A value that cannot be
// followed is warned of, and the default holds: it costs nobody a connection.
func (spec *serviceSpec) affinity(b *body, s *Service) ([]Warning, error) {
	switch spec.SessionAffinity {
	case "ClientIP":
	case "", "None":
		return nil, nil
	default:
		return []Warning{Warning("unknown session affinity " + Quote(spec.SessionAffinity) + " is taken for None")}, nil
	}
	s.Affinity, s.AffinityTimeout = AffinityClientIP, defaultAffinityTimeout
	if !b.nested {
		return nil, nil // that form had gone when the timeout came
	}
	var config struct {
		ClientIP struct {
			TimeoutSeconds *int64 `json:"timeoutSeconds"`
		} `json:"clientIP"`
	}
	if err := b.field("spec.sessionAffinityConfig", spec.SessionAffinityConfig, &config); err != nil {
		return nil, err
	}
	seconds := config.ClientIP.TimeoutSeconds
	switch {
	case seconds == nil:
	case *seconds < 1 || *seconds > int64(maxAffinityTimeout/time.Second):
		return []Warning{Warning(fmt.Sprintf("session affinity timeout of %d seconds is not between 1 and %d; it is taken for %d",
			*seconds, maxAffinityTimeout/time.Second, defaultAffinityTimeout/time.Second))}, nil
	default:
		s.AffinityTimeout = time.Duration(*seconds) * time.Second
	}
	return nil, nil
}
