// Package checks asks endpoints again and again whether they answer, also while no client comes.
//
// A [Checker] has one [Target] for each address and question, however many services have the endpoint, and tells their watchers when
// the target fails or passes. One goroutine makes all checks. They are spread over the interval. At most
// 512 are under way, as far as the descriptors allow, and services share these places. An address that was not checked yet counts as one
// that answers. One whose checks have no result for two intervals and a timeout is overdue.
//
// An [Attempt] asks an address a [Question] once: by a TCP connection, by HTTP, or by a datagram. It decides nothing about when, how often,
// and what follows. It waits for nothing, so one goroutine can have a thousand of them under way. An attempt costs a quarter of what a
// goroutine and a dial of package net cost.
package checks
