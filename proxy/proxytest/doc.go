// Package proxytest has what the tests of package proxy share: endpoints that answer with their name, clients that report how they
// ended, and a check that nothing is left behind. Only tests import it.
//
//	client ──▶ the proxy under test ──▶ endpoint
//	Dial, AskTCP, DialUDP               ServeTCP, ServeUDP, BlackHole
//
// The answer shows where a connection went: [Identify] and [IdentifyUDP] answer with the name of the endpoint. A test that begins with
// [NothingLeaks] fails if the engine leaves anything behind. A test that changes the network or the limits of the machine runs in a
// process of its own: see [Again] and [Peer].
//
// Tests wait for a state, with [Eventually], and never for a duration. [Patience] is the time that one step may take before the test
// fails. It is long, since only a failing test spends it.
//
// The package does not import package proxy, so that the proxy's own tests can use it too.
package proxytest
