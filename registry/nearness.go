package registry

import "fmt"

// setNearness sets which endpoints the clients of a node are given: by the traffic policy of the ports that the service offers, and by its
// distribution. An unusable value causes a warning, and the default holds, which has all endpoints serve.
func (w *Wishes) setNearness(t *Terms) (warnings []Warning) {
	t.Local, warnings = ParseTrafficPolicy(w.TrafficPolicy)
	switch w.Distribution {
	case "PreferSameZone", "PreferClose": // the latter is its older name
		t.Distribution = PreferSameZone
	case "PreferSameNode":
		t.Distribution = PreferSameNode
	case "":
	default:
		warnings = append(warnings, Warning("unknown trafficDistribution "+Quote(w.Distribution)+" has no effect"))
	}
	switch port := w.HealthCheckNodePort; {
	case port == 0 || !t.Local:
	case port < 1 || port > 65535:
		warnings = append(warnings, Warning(fmt.Sprintf("healthCheckNodePort %d is not between 1 and 65535, and has no effect", port)))
	default:
		t.HealthCheckPort = uint16(port)
	}
	return warnings
}

// ParseTrafficPolicy reports whether a traffic policy has clients be given endpoints on the node only.
func ParseTrafficPolicy(s string) (local bool, odd []Warning) {
	if s != "" && s != "Cluster" && s != "Local" {
		odd = append(odd, Warning("unknown traffic policy "+Quote(s)+" is taken for Cluster"))
	}
	return s == "Local", odd
}
