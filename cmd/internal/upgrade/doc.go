// Package upgrade starts the successor of this process at SIGUSR2, which is nginx's signal for it. The successor asks for everything at the
// socket of -takeover; package takeover says how.
//
//	this process            SIGUSR2 finds                                and then
//	serves nothing yet      nobody who could be taken over from          ends, for the service manager to start the program anew
//	serves                  no successor                                 starts one
//	serves                  a successor that waits, as for its etcd      ends that one, and starts another
//	hands over              a successor that is given everything         waits for the outcome
//
// There is at most one successor at a time, so the last signal decides which flags and which program take over.
package upgrade
