// Package faults is the etcd of a chaos run, and what the run does to it and to the network on the way to it.
//
//	proxy under test ──▶ Proxy ──▶ Member ◀── clients of the run
//
// A [Cluster] is one member or three, each a process of its own with a fault proxy before it. It starts, kills and pauses members,
// exchanges their data, loses packets, fills disks, and turns authentication on and off. [Cluster.Heal] undoes all of it. Its methods, and
// those of its members, are for one goroutine.
//
// A [Fault] ends what it has caused before it returns. The files group them: processes, network, outages, history, data, disk,
// authentication, and etcd's grpc-proxy. A fault acts on a [Target]: the cluster, and the [Harness] of the run.
//
// # The fault proxy
//
// A [Proxy] breaks connections in the ways in which networks do. Either both ends learn of the fault ([Proxy.Reset], [Proxy.Refuse]), or
// neither does: a [Mode] forwards, discards or holds the bytes of each direction.
//
// The proxy acknowledges what it receives, even if it discards it. So it behaves like a middlebox that has lost its state, or like
// a peer whose kernel works and whose process does not read: the client sees its bytes accepted, and gets no answer. Where packets
// themselves are lost nothing is acknowledged, and the client's kernel retransmits ([Cluster.LosePackets]).
//
// Bytes that were discarded are gone, and what follows them makes no sense to either end. So a connection that has lost bytes stays
// silent until one end gives it up. [Proxy.Restore] is for new connections.
package faults
