// Package privatedir checks that no other user can replace what a process keeps in a directory: its saved state, the socket at which its
// successor asks. Who could would decide where clients go.
package privatedir
