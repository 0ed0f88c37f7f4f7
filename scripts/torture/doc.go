// Torture compares what clients and endpoints see of kube-proxy with what it promises, in every way that a connection can go and end.
//
//	clients ══▶ bin/kube-proxy, one engine or the kernel ══▶ endpoints
//	   │            │ connection log, /metrics                  │
//	   └────────────┴──────────▶ model ◀────────────────────────┘
//
// Clients and endpoints are in this process, so that both ends of each stream can be compared. A run has one round after the other. In a
// round some hundred TCP connections do what their scripts say: they send chunks with pauses, read slowly, half-close in either order,
// reset or leave at any byte. Some endpoints speak first, some want a PROXY header. Meanwhile UDP clients send bursts, of which every
// datagram has a number, to endpoints that live, die, return and leave their record, and more clients come than may have sessions. The
// process is stopped (SIGSTOP) now and then, or another one takes over from it. When all is quiet, package model judges each
// connection, and draws up the ledger of each UDP service. It knows no engine. From the second round on the control socket is asked over and over how many
// clients an endpoint has whose sessions go on: it must never say none (kube-proxy wait).
//
// Each choice comes from the seed; timing does not. A fault is printed with the script of its connection, what both sides saw, and the
// command that gives this script to every connection of a run: a fault that needs an unlucky moment soon finds another one.
//
// # What is weaker, and why
//
//   - Who closes a connection with input that it has not read sends a reset and no FIN, and its kernel throws away what was not sent yet. So
//     the other side of one that leaves may see either, but a clean end only behind all bytes.
//   - A process that drains because its successor cannot have its connections (the portable engine hands over listeners only) counts the last of
//     them for itself. In such a round metrics may be lower than the connection log, and the ledgers of UDP services are not compared.
//   - A client whose endpoint is still being connected to goes over without that attempt, and the successor makes it anew. So in a round with a
//     take-over an endpoint may see a connection that ends before it says anything.
//   - Clients that the kernel carries, or that a predecessor keeps (the portable engine), are not counted, so nothing is asked there.
//   - What the kernel carries has no line in the connection log, and counts of its datagrams are none of kube-proxy's. A client of an
//     endpoint that died is refused there until the next check (docs/kernel.md), so endpoints of TCP services do not die.
//   - Of a service whose endpoints die, what arrives late or once more may arrive in the next round. It is left out of that round's ledger.
//   - Datagrams that a receive buffer or the queue of a network device had no room for are the kernel's. Its own counters say how many they were.
//
// # Files
//
// player.go is one side of a connection, endpoints.go and datagrams.go are the endpoints, run.go is a round, disturb.go what happens
// meanwhile, watch.go what asks, judge.go compares. proxy.go is the program under test, network.go where it stands.
package main
