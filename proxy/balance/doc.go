// Package balance knows the endpoints of every port of every service.
//
// A [LoadBalancerRR] holds one [rotation.Rotation] for each port of each service: it gives it the endpoints of the records, and forgets
// it when it has neither endpoints nor a claim. Package [kubeproxy/proxy/balance/rotation] gives the endpoints to clients. Engines know
// only that package.
package balance
