// Package cluster is the etcd of a chaos run: one member or three, each a process of its own, with a fault proxy on the way to it, and
// what can be done to them.
//
//	proxy under test ──▶ faultproxy.Proxy ──▶ member ◀── clients of the run
//
// A [Cluster] starts, kills and pauses members, exchanges their data, loses packets, fills disks, and turns authentication on and off.
// [Cluster.Heal] undoes all of it. Its methods, and those of its members, are for one goroutine.
package cluster
