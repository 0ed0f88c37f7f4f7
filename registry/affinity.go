package registry

import (
	"fmt"
	"time"
)

// An Affinity says whether a client returns to the endpoint that it had.
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

// setAffinity sets whether clients return to their endpoint, and for how long. An unusable value causes a warning, and the default
// holds: no client loses a connection by that.
func (spec *serviceSpec) setAffinity(t *Terms) []Warning {
	switch spec.affinity {
	case "ClientIP":
	case "", "None":
		return nil
	default:
		return []Warning{Warning("unknown session affinity " + Quote(spec.affinity) + " is taken for None")}
	}
	t.Affinity, t.AffinityTimeout = AffinityClientIP, defaultAffinityTimeout
	seconds := spec.affinityTimeout
	switch {
	case seconds == nil:
	case *seconds < 1 || *seconds > int64(maxAffinityTimeout/time.Second):
		return []Warning{Warning(fmt.Sprintf("session affinity timeout of %d seconds is not between 1 and %d; it is taken for %d",
			*seconds, maxAffinityTimeout/time.Second, defaultAffinityTimeout/time.Second))}
	default:
		t.AffinityTimeout = time.Duration(*seconds) * time.Second
	}
	return nil
}
