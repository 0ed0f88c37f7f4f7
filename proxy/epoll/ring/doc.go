// Package ring is the part of io_uring (Linux 6.1) that an event loop needs, by raw system calls: receives into buffers that the kernel takes
// from a pool, sends that never wait, and one system call that submits all of them and waits for what comes.
//
// A ring is two queues in memory that the kernel shares. The loop writes entries, the kernel answers with completions:
//
//	loop:    write entries ──▶ enter: submit and wait ──▶ read completions ──┐
//	             ▲                                                           │
//	             └──────────── write more entries ◀── deal with each ◀───────┘
//
// A receive waits in the kernel until its socket has something; only then it takes a buffer, so those that wait have none. A send is done by the
// time that enter returns.
package ring
