// Package filesource keeps the rest of the program informed of the records in a directory: the registry of those who have no etcd, or
// who want a few services to be there without one.
//
// The path of a file below the directory is its key, by the rules of package keyfiles. "kube-proxy check DIRECTORY" reads a directory by
// the same rules.
//
//	hint, or 5 s ─▶ keyfiles.Tree ─Scan─▶ records.State ─▶ registry.Update
//	                 what has changed      decodes
//
// # A scan is one step
//
// A scan reads the whole directory, and everything that it finds changed takes effect in one step. Whether a file has changed is seen by
// its size, its time and its identity. About every sync period a scan reads every file and sends a SET.
//
// A registry has revisions, and a directory has none. So the source counts: the revision is the number of scans that found a
// difference, and a file's life begins with the revision of the scan that found it new. Of two services that want one port, the one whose
// file was found by an earlier scan has it; after a start, when all files are new, the name decides, as in "kube-proxy check".
//
// # Promises
//
//   - A directory that cannot be read, wholly or in part, changes nothing: what was known stays in force, the [Source] says so in its
//     status and in the log, and looks again. So does one without registry/services in it: an empty directory is what a volume
//     leaves behind that is not mounted. So does one with links through a ..data that leads nowhere. An empty registry/services is an empty
//     registry, and closes every port.
//   - A file that is replaced by a rename takes effect as a whole. One that is written in place may be read half-way: it then does not
//     decode, and its last good version stays in force, as that of any bad file.
//   - A file that is missing counts as deleted if a scan 200 ms later does not find it either: editors move the old file away, or remove it,
//     before they write the new one. What a swapped ..data link deletes is deleted in the step of the swap.
//   - Several files change in one step if the scan sees them all: rename them within 20 ms, or swap a ..data link as Kubernetes does.
//   - Memory is bounded by the limits of package keyfiles.
//   - Notices of the operating system only make a scan come sooner, 20 to 60 ms after a change. Where there are none, as on network
//     file systems, the next scan after 5 s finds the change.
//
// # What it cannot know
//
// A file that is removed and written again between two scans is, for it, a file that was changed: a last good version survives that.
package filesource
