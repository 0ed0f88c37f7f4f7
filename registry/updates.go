package registry

import "time"

// A Change tells the newest value of one object: nil is v0.4's REMOVE (never in a SET), anything
// else its ADD.
type Change[T any] struct {
	Name  Name
	Value *T
}

// An Update is one step of one source, with both kinds together: what etcd committed together
// arrives together.
type Update struct {
	Set       bool      // v0.4's SET: the lists are all there is
	Revision  int64     // once applied, the source equals the registry at this revision
	Received  time.Time // when the source heard of it
	Services  []Change[Service]
	Endpoints []Change[Endpoints]
}

// A Batch carries to one queue of handlers the newest value of everything that changed since that
// queue's last batch; nil means gone.
type Batch struct {
	Oldest    time.Time // when the oldest of these changes was received
	Revision  int64     // of the newest of these changes, in its source; 0 if that has none
	Services  map[Name]*Service
	Endpoints map[Name]*Endpoints
	Partial   bool // a source has not been read yet, so an object that no batch has named may well exist
}
