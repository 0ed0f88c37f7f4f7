// Package etcdtest gives tests a real etcd to talk to, in two forms.
//
// A [Server] is etcd inside the test's own process: ready in a fraction of a second, and the right
// choice when a test only needs an etcd that works.
//
// A [Process] is etcd as its own process, which can be treated as badly as an etcd in the field:
// killed, stopped, frozen in the middle of a sentence, started again on the same ports with the
// same data, or with somebody else's.
//
// Both listen on 127.0.0.1 only, keep their data below the test's temporary directory, and end with
// the test. A [Link] is a TCP path to either that can be cut, or can swallow what it is given.
// [NewCA] makes certificates, [EnableAuth] turns on users and passwords.
package etcdtest
