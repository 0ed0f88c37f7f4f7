// Package proxytest is what the tests of package proxy stand on: endpoints that say who they are,
// clients that say what became of them, and a check that nothing is left behind. Only tests import
// it.
//
//	client ──▶ the proxy under test ──▶ endpoint
//	Dial, AskTCP, DialUDP               ServeTCP, ServeUDP, BlackHole
//
// A test asks where a connection went by reading the answer: [Identify] and [IdentifyUDP] answer
// with the name of the endpoint. It knows that an engine cleans up after itself by beginning with
// [NothingLeaks]. What would take the machine's own network or limits is done in a process of its
// own: see [Again] and [Peer].
//
// Tests wait for a state, with [Eventually], and never for a duration. [Patience] is how long any
// one thing may take before the test calls it lost; it is long, since it is only ever spent by a
// test that fails.
//
// The package does not import package proxy, so that the proxy's own tests can use it too.
package proxytest
