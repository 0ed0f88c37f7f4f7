package advice

import (
	"fmt"

	"kubeproxy/cmd/internal/localhealth"
	"kubeproxy/registry"
)

// HealthPort says what is wrong with the healthCheckNodePort of a service, and what to do.
func HealthPort(p localhealth.Problem) string {
	switch {
	case p.Err != nil:
		return fmt.Sprintf("healthCheckNodePort %d of %s is not open, so load balancers send its clients to other nodes: %v. %s. It is tried again.", p.Port, p.Service.Label(), p.Err, Open(p.Err))
	case p.Owner != (registry.Name{}):
		return fmt.Sprintf("Load balancers of %s are told about %s at healthCheckNodePort %d, which both have, so clients of %[1]s may be refused: give one of them another.", p.Service.Label(), p.Owner.Label(), p.Port)
	}
	return fmt.Sprintf("healthCheckNodePort %d of %s is not open, so load balancers send it no clients: services ask for more of them than a node opens (%d), and the lowest are open. "+
		"Remove those that nobody asks.", p.Port, p.Service.Label(), localhealth.MaxPorts)
}
