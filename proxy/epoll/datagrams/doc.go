// Package datagrams carries the datagrams of an event loop: its UDP ports, and the sessions of their clients.
//
// What becomes of a datagram is what package udp says. The loop hands its events to [Sessions], which read and send in batches.
package datagrams
