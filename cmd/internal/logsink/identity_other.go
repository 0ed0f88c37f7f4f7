//go:build !unix

package logsink

import "os"

// identity is not known here: there is no journal.
func identity(*os.File) (device, inode uint64, ok bool) { return 0, 0, false }
