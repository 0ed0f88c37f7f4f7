// Package logsink stands between glog and where log lines go, so that a log that cannot be written neither stops nor
// ends the process.
//
//	glog ──▶ os.Stderr, now a pipe ──▶ read: split, by severity ──▶ outlet: bounded queue ──▶ write ──▶ standard error
//	         never full for long      never waits                  full: counted             may wait     or a log file
//
// glog writes synchronously, under a lock, and ends the process when a write fails. So it writes to a pipe that this
// package always empties. Each destination has an outlet of its own: one that is stuck does not hold up another.
//
// An error of a write costs the lines that it was about, and nothing else. When lines can be written again, one line
// says how many were lost. Descriptor 2 stays what it was, and so Go's own words about a panic go there directly.
package logsink
