// Package kernelpath measures what -kernel=auto gains: a client, a node and a backend, each with a network of its own. The same load goes
// from the client to the backend in four ways, in turn: routed by the node, translated by one rule written by hand, carried by the kernel
// for kube-proxy, and relayed by kube-proxy in userspace.
// With -changes it measures how long a change in etcd takes until the kernel has it.
package kernelpath
