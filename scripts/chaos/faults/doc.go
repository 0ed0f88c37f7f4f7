// Package faults is what a chaos run does to etcd, and to the network between etcd and the proxy under test.
//
// Each [Fault] ends what it has caused before it returns. The files group them: processes, network, outages, history, data, disk,
// authentication, and etcd's grpc-proxy. A fault acts on a [Target]: the members and fault proxies of package cluster, and the [Harness]
// of the run.
package faults
