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

// affinityTimeout reads how long clients are to be remembered, in seconds; nil: the record does not say.
func (b *body) affinityTimeout(spec *jsonSpec) (*int64, error) {
	if spec.SessionAffinity != "ClientIP" || !b.nested || spec.SessionAffinityConfig == nil { // the flat form had gone when the timeout came
		return nil, nil
	}
	var config struct {
		ClientIP struct {
			TimeoutSeconds *int64 `json:"timeoutSeconds"`
		} `json:"clientIP"`
	}
	err := b.field("spec.sessionAffinityConfig", spec.SessionAffinityConfig, &config)
	return config.ClientIP.TimeoutSeconds, err
}

// setAffinity says what the service is to do about clients that come back. A value that cannot be
// followed is warned of, and the default holds: it costs nobody a connection.
func (spec *serviceSpec) setAffinity(s *Service) []Warning {
	switch spec.affinity {
	case "ClientIP":
	case "", "None":
		return nil
	default:
		return []Warning{Warning("unknown session affinity " + Quote(spec.affinity) + " is taken for None")}
	}
	s.Affinity, s.AffinityTimeout = AffinityClientIP, defaultAffinityTimeout
	seconds := spec.affinityTimeout
	switch {
	case seconds == nil:
	case *seconds < 1 || *seconds > int64(maxAffinityTimeout/time.Second):
		return []Warning{Warning(fmt.Sprintf("session affinity timeout of %d seconds is not between 1 and %d; it is taken for %d",
			*seconds, maxAffinityTimeout/time.Second, defaultAffinityTimeout/time.Second))}
	default:
		s.AffinityTimeout = time.Duration(*seconds) * time.Second
	}
	return nil
}
