package localhealth

import "kubeproxy/registry"

// A Problem is that the healthCheckNodePort of a service is not open for it. Without an owner and an error, services ask for more than a node opens.
type Problem struct {
	Service registry.Name
	Port    uint16
	Owner   registry.Name // the service that has the port: load balancers are told about that one; zero: none
	Err     error         // why the port cannot be opened
}

func byService(a, b Problem) int { return a.Service.Compare(b.Service) }
