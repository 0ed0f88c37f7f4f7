// Package edit shows, writes and deletes the records of services in etcd, for kube-proxy get, put and rm. What it writes, it has decoded as a node
// does, and it writes nothing that has changed since it was read.
package edit
