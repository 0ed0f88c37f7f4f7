// Package statefile keeps the merged state on disk, so that a node that starts while no source can be read serves what it served before.
//
//	Broadcaster ──Batch──▶ File ──at most once a period──▶ DIR/kube-proxy.state
//	Mux ◀──SET── Load ◀──at a start without any source──────────┘
//
// # The file
//
// It holds lines of JSON: a header, one line for each service and for each endpoints object, and a SHA-256 of all that. It
// holds the merged state and no records, so it is the same for all sources. What it holds is checked as it is read. A later release may add fields,
// which an earlier one ignores: so neighbours read each other's files.
//
// # Promises
//
//   - The file is one whole state, as it was between two updates: it is written beside the old one, synced, and renamed
//     (rename(2) is atomic), and then the directory is synced. A process that is killed leaves the old file or the new one.
//   - A file that cannot be used is set aside as kube-proxy.state.bad, and one that is too old as kube-proxy.state.old. Neither is fatal.
//   - State that came from the file is not written again: the age of the file is the age of what the sources said.
//   - Only the user of this process can read the file. A directory that others may write to is refused.
package statefile
