// Package register keeps one instance of a service in the registry for as long as it answers.
//
// An Endpoints record holds all endpoints of a service in one value, and a value has one lease. So each instance has a
// record of its own: an EndpointSlice with one endpoint, which belongs to a lease. If the registrar dies, the lease expires,
// and etcd deletes the record.
//
//	            check passes           check fails
//	absent ─────────────────▶ ready ◀──────────────▶ failing
//	                            │
//	                            └──stop──▶ terminating ──drain──▶ absent
//
// # Promises
//
//   - [Registrar.Run] compares the record with what it should be three times within the life of a lease, and repairs it. A lease
//     that etcd has lost is granted anew: after an outage, a restore from a backup, or a pause of this process.
//   - An instance is identified by host, address and ports. Of two registrars of one instance the one that was started last
//     publishes it. The other waits, and takes over when the first one stops or dies.
//   - The record of a registrar that stops is marked as terminating first, so that proxies send new clients elsewhere. Its
//     deletion follows after Config.Drain.
//   - A registrar never deletes a record that another one keeps. A record of its instance that has no lease is kept by nobody: it
//     treats that one as its own.
package register
