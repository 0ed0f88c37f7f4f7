// Package ownersocket makes UNIX sockets that only the user of the process and root can use: the one at which a successor asks, and the one
// by which an operator controls the process. The file has mode 0600, nobody else can replace it, and each peer is asked of the kernel.
package ownersocket
