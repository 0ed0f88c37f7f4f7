// Package store is where a program that the school judges reads its records from: files, an etcd, or an etcd 2.
//
// The judge writes and deletes records, and has an etcd fail. For each of these there is a command that repeats it by hand.
package store

import "errors"

// A Store holds records. A key is the end of what stands below /registry/services/, such as specs/web.
type Store interface {
	Flags() []string // what the program is told
	Put(key, value string) error
	Delete(key string) error // of a key that is not there: nothing
	PutByHand(key, value string) string
	DeleteByHand(key string) string
	Close()
}

// A Server is a store with a server that can fail.
type Server interface {
	Store
	Address() string           // host and port that it serves clients at
	LeadTo(address string)     // programs that start from now on are told this address
	Kill()                     // as a power cut would end it
	Start() error              // again, at the same address, with its data
	Pause()                    // connections stay open, and nothing answers
	Resume()                   // ends a pause
	Wipe() error               // deletes the data of one that was killed
	ByHand(fault Fault) string // what repeats a fault
}

// A Fault is one of the methods of a Server.
type Fault int

// The faults.
const (
	Kill Fault = iota
	Start
	Pause
	Resume
	Wipe
)

// prefix is what all keys begin with, in an etcd.
const prefix = "/registry/services/"

// ErrNoEtcd is why there is no etcd.
var ErrNoEtcd = errors.New("no etcd: put etcd 3.5 or newer into the PATH, or build one with make school")
