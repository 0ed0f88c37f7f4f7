package model

import "fmt"

// Flows is the ledger of the datagrams of one UDP service during one round: what clients and endpoints know, what kube-proxy counted, and
// what kernels dropped. It is drawn up when everything is quiet.
type Flows struct {
	Service string

	Asked    int    // datagrams that clients sent
	Arrived  int    // that endpoints received, each time counted
	Again    int    // of these, those that had been received before
	Replied  int    // datagrams that endpoints sent back
	Answered int    // that clients received, each time counted
	Foreign  int    // received by anybody, and not what anybody had sent to him, or more often than it was sent
	Strange  string // the last of them

	// By the metrics of kube-proxy.
	Sent     int // datagrams to endpoints
	Received int // to clients
	Dropped  int
	Failures int // attempts to reach an endpoint that failed

	// By kernels, which nobody else can know: the receive buffers of endpoints, of clients and of kube-proxy's sockets towards endpoints,
	// and the queues between network devices, whatever service those dropped it of.
	EndpointFull, ClientFull, SessionFull, QueueFull int

	Calm    bool // no endpoint died or left its record
	Kernel  bool // the kernel may have carried it: then the metrics count few of it
	Drained bool // a process ended whose sessions its successor could not have: what they had on the way is lost, and so is what it counted last
}

// resends is how often a datagram may be sent to one endpoint more, for each attempt that failed: what an endpoint refuses is sent to the
// next one, with up to 64 datagrams that waited for it (N2).
const resends = 65

// Judge returns what is wrong, one sentence for each fault.
func (f Flows) Judge() (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("UDP service %s: ", f.Service)+fmt.Sprintf(format, args...))
	}
	if f.Foreign > 0 {
		say("%d datagrams were received that had not been sent so, or not so often", f.Foreign)
	}
	// Fewer are missing than the queues between devices dropped, or none.
	missing := func(n, most int, what string) {
		if n < 0 || n > most+f.QueueFull {
			say("%s: %d datagrams are missing; the kernel accounts for up to %d", what, n, most+f.QueueFull)
		}
	}
	if f.Drained {
		return wrong
	}
	if f.Calm {
		if f.Again > 0 {
			say("%d datagrams arrived twice, though no endpoint refused one", f.Again)
		}
	} else if f.Again > resends*f.Failures {
		say("%d datagrams arrived twice; %d attempts failed", f.Again, f.Failures)
	}
	if f.Kernel {
		if f.Calm { // what kube-proxy drops of clients that are its own may go either way
			missing(f.Asked+f.Replied-f.Arrived-f.Answered-f.EndpointFull-f.ClientFull-f.Dropped, 0, "to endpoints and to clients")
		}
		return wrong
	}
	if f.Calm {
		missing(f.Asked+f.Replied-f.Sent-f.Received-f.Dropped, f.SessionFull, "neither counted as carried nor as dropped")
		missing(f.Sent-f.Arrived-f.EndpointFull, 0, "counted as sent to endpoints, and not received")
		missing(f.Received-f.Answered-f.ClientFull, 0, "counted as sent to clients, and not received")
		return wrong
	}
	if f.Arrived > f.Sent {
		say("endpoints received %d datagrams; kube-proxy counted %d as sent", f.Arrived, f.Sent)
	}
	counted := f.Sent + f.Dropped
	if lost := f.Asked - counted; lost > f.QueueFull {
		say("%d datagrams of %d were counted neither as sent nor as dropped; the kernel accounts for %d", lost, f.Asked, f.QueueFull)
	}
	if counted > f.Asked+resends*f.Failures {
		say("%d datagrams were counted; clients sent %d, and %d attempts failed", counted, f.Asked, f.Failures)
	}
	return wrong
}
