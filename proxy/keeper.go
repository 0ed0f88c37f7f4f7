package proxy

import "kubeproxy/registry"

// A Keeper has copies of the listening TCP sockets, and gives them to the next process if this one is killed. Clients that connect
// meanwhile wait in the queues of these sockets. UDP sockets are not kept: a port whose service goes must be free at once, and only a TCP
// socket can be made to give up its port while another process has a copy of it.
//
// Its methods are called by one goroutine. An error means that the keeper did not hear it, and the same is said again later.
type Keeper interface {
	// Keep gives it a copy of the socket of a port. It may have one of the same socket already. kept is false when it has no room.
	Keep(id registry.ListenerID, descriptor int) (kept bool, err error)

	// Forget has it close what it keeps for a port, if anything.
	Forget(id registry.ListenerID) error

	// NoteKept tells it of which ports it has a socket already: a predecessor gave it those.
	NoteKept(map[registry.ListenerID]struct{})

	// Flush has it close what no port of this process has had, if it did not hear so before. Keep and Forget do so first. Flush is called
	// when there is nothing else to say.
	Flush() error
}
