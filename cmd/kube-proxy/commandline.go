package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
)

// Topics of flags.
const (
	topicRegistry  = "registry"
	topicListening = "listening"
	topicTimeouts  = "timeouts"
	topicLimits    = "limits"
	topicSecurity  = "security"
	topicOperators = "operators"
	topicState     = "state"
	topicLogging   = "logging"
	topicInstance  = "instance"
	topicObsolete  = "obsolete"
)

// begin reads a command line, and reports whether the program is done by that: it was asked for help or the version, or the command
// line is wrong. Then status is its exit status.
func begin(c *commandline.Command, args []string, stdout, stderr io.Writer) (status int, done bool) {
	switch err := c.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		manual().Usage(stderr, c)
		return exitDone, true
	case err != nil:
		c.Complain(stderr, err)
		return exitUsage, true
	}
	switch c.Version {
	case commandline.VersionOff:
		return 0, false
	case commandline.VersionRaw:
		fmt.Fprintln(stdout, readBuildInfo().raw())
	default:
		fmt.Fprintln(stdout, readBuildInfo())
	}
	return exitDone, true
}

// Exit statuses.
const (
	exitDone   = 0 // a clean stop, -version, -help, help
	exitFailed = 1 // could not start, or could not go on
	exitUsage  = 2 // the command line makes no sense
)
