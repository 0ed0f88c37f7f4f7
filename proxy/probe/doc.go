// Package probe asks an address once whether it answers: by a TCP connection, by HTTP, or by a datagram. It decides nothing about when,
// how often, and what follows. See [kubeproxy/proxy/balance/checks] for that.
//
// An [Attempt] waits for nothing, so one goroutine can have a thousand of them under way. An attempt costs a quarter of what a
// goroutine and a dial of package net cost.
package probe
