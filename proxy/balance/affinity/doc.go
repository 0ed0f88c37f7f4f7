// Package affinity remembers which endpoint a client was given, so that it is given the same one when it comes again
// (sessionAffinity: ClientIP). A client is an IP address: its next connection comes from another port.
//
//   - An endpoint is remembered for a client from when it is offered, so that of several connections
//     that begin together none goes elsewhere.
//   - It is remembered for the service's timeout, counted from the last connection or session that
//     reached it. Neither traffic nor attempts that fail make it longer: else a client that goes
//     on asking could never leave an endpoint that is broken.
//   - It is forgotten when it fails this client, when it is ejected because it failed others, and
//     when it leaves the rotation. Then the client is given another, and that one again. Nothing else
//     that happens to the rotation matters, not even that its endpoints are listed in another order.
//   - An endpoint that leaves and comes back, as all do when a service is scaled to nothing and back,
//     is a new one: what a client had there is most likely gone. That a service wants affinity is
//     part of its claim, and outlasts all its endpoints.
//   - A timeout that is changed counts at once, also for those who are remembered already.
//
// A [Table] is bounded. Which endpoint a client without one is given, and whether it may have its own again, decides the caller
// of [Client.Endpoint].
package affinity
