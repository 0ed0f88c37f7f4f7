package logsink

import (
	"fmt"
	"os"
)

// priorities are how a line tells the journal its priority (sd-daemon(3)), by severity: info, warning, err, crit.
var priorities = [severities]string{"<6>", "<4>", "<3>", "<2>"}

// journalListens reports whether a file is the journal's stream: then JOURNAL_STREAM has its device and inode
// (systemd.exec(5)). The variable alone does not count, since it is passed on to processes whose output goes elsewhere.
func journalListens(f *os.File) bool {
	device, inode, ok := identity(f)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", device, inode)
}
