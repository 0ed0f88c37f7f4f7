package logsink

import "slices"

// severities of glog, from INFO to FATAL.
const severities = 4

// severityOf tells a line that begins a message from one that goes on with it. A message begins with
// a letter for its severity, and month and day.
func severityOf(line []byte) (severity int, ok bool) {
	if len(line) < 6 || line[5] != ' ' {
		return 0, false
	}
	for _, digit := range line[1:5] {
		if digit < '0' || digit > '9' {
			return 0, false
		}
	}
	severity = slices.Index([]byte("IWEF"), line[0])
	return max(severity, 0), severity >= 0
}
