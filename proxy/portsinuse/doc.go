// Package portsinuse asks the system which ports other sockets have, and which of those are the local ports of this process's own connections.
package portsinuse
