// Package removal says what becomes of a TCP connection when its endpoint leaves the service, or the service leaves its port.
//
// A [Lifetime] is the time between. It ends once, and by the [Policy] that the operator chose the connections of the lifetime go on,
// or are told when their time is up.
package removal
