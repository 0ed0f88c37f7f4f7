package portable

import (
	"net"
	"sync"
	"sync/atomic"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/tcp"
)

// A relay carries bytes between a client and a backend: a pump for each direction, each on its own
// goroutine. How it ends is what [tcp.Teardown] says.
type relay struct {
	client, backend side
	cfg             *engine.Config
	account         *tcp.Connection // of the client
	endpointEnded   sync.Once       // of its EndpointEnded

	pumping atomic.Int32  // pumps that have not ended
	done    chan struct{} // closed when both have

	mu  sync.Mutex // guards end
	end tcp.Teardown
}

// A side is one of the two connections of a relay.
type side struct {
	which tcp.Side
	conn  *net.TCPConn
	sent  atomic.Int64   // bytes written to it
	total *atomic.Uint64 // bytes written to this side of all relays of the service

	header, said []byte // written before what the other side sends; of the two only said counts

	writing sync.Mutex // held during a write, and until its failure was noted
}

// reset ends a connection by a RST. What has not been delivered yet is lost.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0) // fails on a connection that is closed
	conn.Close()
}
