// Package enginetest holds the promises of engines that need a look at their limits, budget and name look-ups, as tests, and what other
// tests of engines need: rotations, claims, and the record of a UDP service that changes. An engine runs all of them by [Run].
package enginetest
