// Package rotation gives the endpoints of one port of a service to clients: by round robin or another algorithm, without those that
// are ejected, and with affinity for services that want it.
//
// A [Rotation] is the same value as long as its port is claimed; [Rotation.Replace] changes its endpoints. A [Choice] offers them to one
// client, each at most once. Choosing takes no lock, except for the first client after all endpoints have changed, and for services
// with affinity. [Rules] hold what all rotations of a balancer have in common.
//
// The algorithms choose one of n positions of a set, at a cost that does not depend on n. Package positions has what they choose by, and knows
// which are ready. Package affinity remembers which endpoint a client was given, and news tells those that wait for one when to look again.
// Package health knows of each endpoint whether it is ready, and checks asks those that services want asked.
package rotation
