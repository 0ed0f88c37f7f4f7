// Package proxy carries client traffic to service endpoints: it makes the open ports match what package config wants.
//
//	          balance.LoadBalancerRR ──▶ rotation: the endpoints of one port of one service, in turn
//	            ▲                    ▲
//	            │ endpoints          │ choose, next, failed, answered
//	batch ──▶ Proxier ──▶ listener ──┴──▶ engine ──▶ sockets
//	          claims      first claim      bytes
//	                      owns the port
//
// A [Proxier] holds one listener for each (address, protocol, port) that a service claims. The first claim on a port owns it. Later claims wait,
// and the status shows them. When the owner goes, the next claim takes over by a swap of a pointer: the socket stays open, and closes
// only when no claim is left. The Proxier receives changes in batches. It gives the endpoints of a batch to its
// [balance.LoadBalancerRR] first, so that no port opens before its endpoints are known.
//
// A TCP client gets one endpoint, or the next one if that does not answer. Both directions are relayed until both sides have
// finished. A UDP client, known by its address, keeps its endpoint for the life of its session: until the session has been silent for
// -udp_timeout, the endpoint goes, or the port changes hands.
//
// # Promises
//
//   - A batch is applied as a whole when [Proxier.OnUpdate] returns. Two services that swap ports in one batch both work after it, and
//     no client is refused meanwhile.
//   - A service that keeps its port is never interrupted, whether other services or its own terms for clients change. A relay
//     outlives its listener, its service and its endpoint, unless [Config].OnRemoval says otherwise. The end of the drain, which
//     Run makes when it is stopped, cuts it.
//   - Only the sequence of batches decides which of two services gets a port. The present owner keeps it. New claims of one batch are
//     ordered by [registry.Precedence]: by the rank of their source, then by the age of the claim, then by name.
//   - Choosing an endpoint takes no lock, except for the first client after all endpoints have changed, and for services with
//     affinity. No client waits for another client's dial.
//   - An endpoint that refuses is ejected for a while, for the protocol in which it refused. When all are ejected, they are tried all
//     the same.
//   - Whatever strangers can make grow is bounded: buffers, connections, sessions, descriptors. A client above a limit is refused at
//     once, and a [traffic.Limit] shows how much of a limit is used.
//   - Every accepted client ends once, by one [traffic.Reason], and is counted there. [traffic.Totals] is the sum of the
//     [traffic.Ending] values that [Config].Ended received.
//
// ARCHITECTURE.md defines the words listener, claim, session, relay, pump, client and backend.
package proxy
