package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/proxy/kernel"
)

func cleanupCommand() *commandline.Command {
	return commandline.New("kube-proxy cleanup", "", "deletes what an ended kube-proxy left in the kernel of this network namespace, and exits with 1 if something remains",
		func(flags *pflag.FlagSet) error {
			if flags.NArg() > 0 {
				return commandline.Unexpected(flags.Arg(0), "kube-proxy cleanup")
			}
			return nil
		})
}

// runCleanup is the program when its first argument is "cleanup": without that word.
func runCleanup(args []string, stdout, stderr io.Writer) int {
	if status, done := begin(cleanupCommand(), args, stdout, stderr); done {
		return status
	}
	deleted, owned, err := kernel.Cleanup()
	for _, table := range deleted {
		fmt.Fprintf(stdout, "deleted table inet %s, and the UDP flows to its endpoints\n", table)
	}
	for _, table := range owned {
		fmt.Fprintf(stdout, "left table inet %s: its process runs, and the kernel deletes the table when the process ends\n", table)
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "kube-proxy cleanup:", err)
		return exitFailed
	case len(owned) > 0:
		return exitFailed
	case len(deleted) == 0:
		fmt.Fprintln(stdout, "nothing of a kube-proxy is in the kernel")
	}
	return exitDone
}
