// Package choosing chooses one of n positions for a client, at a cost that does not depend on n: two at random, one by a hash of the
// client's address, or one in turn or at random by weights. It does not know what stands at a position.
package choosing
