//go:build !linux

package ownersocket

import "net"

// Supported reports whether this system has such sockets.
const Supported = false

// A Socket is one that listens. There is none here.
type Socket struct{ *net.UnixListener }

// Listen returns an error.
func Listen(string, string) (*Socket, error) { return nil, ErrNotHere }

// PeerOf returns an error.
func PeerOf(*net.UnixConn) (Peer, error) { return Peer{}, ErrNotHere }
