// Package anyip has this machine answer for all addresses of ranges that no interface has, such as those that a cluster gives its services.
//
// One route of type local for each range does that (AnyIP): the kernel takes what is sent there for its own, and services bind listeners to
// single addresses. [Routes] makes the routes, makes those again that another program deletes, and deletes them at the end. A successor goes on
// with the routes of its predecessor, and deletes those for other ranges once it serves; one that never serves deletes only what it made.
//
// The routes are in the table local of the network namespace. They have the protocol [Protocol], by which [Cleanup] knows them, and a metric
// that tells apart the processes of one machine. A client on the machine itself that connects to such an address comes from the loopback
// (preferred source), as one does that connects to 127.0.0.2; else it would come from the address that it connects to.
//
// Linux only. The routes take CAP_NET_ADMIN.
package anyip
