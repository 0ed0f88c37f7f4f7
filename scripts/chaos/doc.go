// Chaos runs a proxy against an etcd, injects faults into etcd and its network, and checks that the proxy serves what the registry says.
//
//	writer ──▶ etcd ◀── fault proxies ◀── node ──▶ backends
//	   │         ▲                  ▲  │
//	   │       faults         clients  │ reports
//	   ▼                            ▼  ▼
//	history ◀─────────────── checks: recorder, records, quiet points
//
// The etcd members and the proxy are processes of their own. Sockets, clients and backends are real; the network between them is loopback,
// with fault proxies in it. Each Update of the source is compared with the history of what was written, at its revision (see [truth]).
// After each fault the writer pauses. Recovery is the time from the first linearizable read that etcd answers again until the newest
// change has reached the proxier. Meanwhile clients connect to services that exist throughout. None may fail, or be answered by a backend
// that is in no record.
//
// Each choice comes from the seed. Timing does not: a seed repeats what is done, and roughly when.
//
// # Packages
//
// This package is the run: experiment.go connects its parts, run.go injects faults one after the other, and quiet.go compares. clients.go is
// the load, and records.go knows which answers are right. breakage.go proves that the run can fail. soak.go is another run, without faults,
// that writes as fast as etcd can.
//
// Package faults is the members of etcd, the fault proxies before them, and what is injected. Package proxynode is the proxy under test.
package main
