// Package relay carries the bytes of TCP connections in an event loop, from the moment that a client has its endpoint, and ends them.
//
//   - [Relays]: both directions of each connection, and its end.
//   - [Backlog]: which connections go on in a later turn.
//   - [Conns]: the connections, from their acceptance on, and when each is looked at.
//
// relay_linux.go tells how a connection begins, and how its bytes move: read_linux.go reads, write_linux.go writes and holds what does not
// fit, and endings_linux.go ends. early_linux.go is what an endpoint gets before that. What only a loop with a ring does stands apart, in
// ringed_linux.go and moving_linux.go.
//
// How a connection ends is what package tcp says. Who finds its endpoint, the loop knows: until then it asks here only for a place for the
// connection, for its timer, and to send what the client has said already.
package relay
