// Package etcdtest starts a real etcd for tests.
//
// A [Process] is the etcd of this module's graph, as a process of its own. A test can kill, stop or freeze it at any moment, and start it
// again on the same ports with the same data or with other data. It listens on 127.0.0.1 only, keeps its data below the test's
// temporary directory, and ends with the test.
//
// A [Link] is a TCP path to it that can be cut, or can swallow what it is given.
// [NewCA] makes certificates, [EnableAuth] turns on users and passwords.
package etcdtest
