// Package forwarding finds out whether the node passes on packets that are for others, as those of clients are that the kernel carries: what settings and
// firewall say.
package forwarding
