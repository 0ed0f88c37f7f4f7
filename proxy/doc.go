// Package proxy carries client traffic to service endpoints: it makes so what package config says
// is wanted.
//
//	          balance.LoadBalancerRR ──▶ rotation: the endpoints of one port of one service, in turn
//	            ▲                    ▲
//	            │ endpoints          │ choose, next, failed, answered
//	batch ──▶ Proxier ──▶ listener ──┴──▶ engine ──▶ sockets
//	          claims      first claim      bytes
//	                      owns the port
//
// A [balance.LoadBalancerRR] holds one rotation for each port of each service. A [Proxier] holds one listener
// for each (protocol, port) that a service claims. The first claim on a port owns it; later ones
// wait, visibly, until it is theirs. To move a port from one service to another is to swap a
// pointer: the socket stays open, and closes only when no claim is left. The Proxier is told of changes
// in batches, and gives the balancer its part first, so that a port never opens before its endpoints are known.
//
// A TCP client is given one endpoint, or the next one if that does not answer, and the two are
// relayed until both sides have finished speaking. A UDP client, known by its address, is given an
// endpoint for as long as its session lasts: until it has been silent for a while, the endpoint
// goes, or the port changes hands.
//
// # Promises
//
//   - A batch is applied as a whole when OnUpdate returns. Two services that swap ports in one batch
//     both work after it, and no client is refused meanwhile.
//   - A service that keeps its port never blinks, whatever happens to others, or to its own terms for
//     clients. Connections that are being relayed outlive their listener, their service and their
//     endpoint, unless [Config].OnRemoval says otherwise; else only the end of the drain that Run
//     makes when it is told to stop cuts them.
//   - Which of two services gets a port depends on nothing but the sequence of batches: who has it
//     keeps it, and of newcomers the one created first gets it.
//   - Choosing an endpoint takes no lock, but for the first client after all of them have changed, and where
//     the service wants its clients to come back to the endpoint that they had. No client waits for another
//     client's dial.
//   - An endpoint that refuses is passed over for a while, over the protocol that it refused, but never
//     all endpoints are.
//   - What a stranger can make grow is bounded: buffers, connections, sessions, descriptors. Who is
//     one too many is refused at once, and a [traffic.Limit] tells how close that is.
//   - Every client that is accepted ends once, by one [traffic.Reason], and is counted there: [traffic.Totals] adds up
//     what [Config].Ended was told of one by one.
//
// The words listener, claim, session, relay, pump, client and backend are used throughout as
// ARCHITECTURE.md defines them.
package proxy
