// Package balance chooses endpoints: by round robin, without those that fail, and with affinity for the services that want it.
//
// A [LoadBalancerRR] holds one [Rotation] for each port of each service. A [Choice] offers the endpoints of a rotation to one
// client, each at most once. To choose takes no lock, but for the first client after all endpoints have changed, and where the
// service wants affinity.
package balance
