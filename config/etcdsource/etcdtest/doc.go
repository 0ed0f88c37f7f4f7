// Package etcdtest starts a real etcd for tests, in two forms.
//
// A [Server] is etcd inside the test's own process: ready in a fraction of a second, and the right
// choice when a test only needs an etcd that works.
//
// A [Process] is etcd as its own process. A test can kill, stop or freeze it at any moment, and start it again on the same ports with
// the same data or with other data.
//
// Both listen on 127.0.0.1 only, keep their data below the test's temporary directory, and end with
// the test. A [Link] is a TCP path to either that can be cut, or can swallow what it is given.
// [NewCA] makes certificates, [EnableAuth] turns on users and passwords.
package etcdtest
