package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/proxy/anyip"
	"kubeproxy/proxy/kernel"
)

// cleaned is what was found in the kernel, as -o json prints it.
type cleaned struct {
	Deleted []string `json:"deleted"` // tables
	Left    []string `json:"left"`    // tables of processes that run
	Routes  []string `json:"routes"`  // deleted: to ranges of -service_cidr
}

func cleanupCommand(output *string) *commandline.Command {
	*output = outputText
	c := commandline.New("kube-proxy cleanup", "", "deletes what an ended kube-proxy left in the kernel of this network namespace, and exits with 1 if something remains",
		func(flags *pflag.FlagSet) error {
			if flags.NArg() > 0 {
				return commandline.Unexpected(flags.Arg(0), "kube-proxy cleanup")
			}
			return nil
		})
	c.Group(commandline.General, func(f *pflag.FlagSet) {
		f.VarP(commandline.Choice(output, outputText, outputJSON), "o", "o", "`format` of the output: text or json")
	})
	return c
}

// runCleanup is the program when its first argument is "cleanup": without that word.
func runCleanup(args []string, stdout, stderr io.Writer) int {
	var output string
	if status, done := begin(cleanupCommand(&output), args, stdout, stderr); done {
		return status
	}
	deleted, owned, err := kernel.Cleanup()
	ranges, failed := anyip.Cleanup()
	err = errors.Join(err, failed)
	routes := []string{}
	for _, p := range ranges {
		routes = append(routes, p.String())
	}
	if output == outputJSON {
		text, failed := inert.Document(cleaned{append([]string{}, deleted...), append([]string{}, owned...), routes})
		_, _ = stdout.Write(text) // who does not want to know need not
		err = errors.Join(err, failed)
	} else {
		printCleaned(stdout, deleted, owned, routes, err)
	}
	switch {
	case err != nil:
		fmt.Fprintln(inert.Writer(stderr), "kube-proxy cleanup:", err)
		return exitFailed
	case len(owned) > 0:
		return exitFailed
	}
	return exitDone
}

func printCleaned(w io.Writer, deleted, owned, routes []string, err error) {
	for _, table := range deleted {
		fmt.Fprintf(w, "deleted table inet %s, and the UDP flows to its endpoints\n", table)
	}
	for _, table := range owned {
		fmt.Fprintf(w, "left table inet %s: its process runs, and the kernel deletes the table when the process ends\n", table)
	}
	for _, p := range routes {
		fmt.Fprintf(w, "deleted the route to %s (-service_cidr)\n", p)
	}
	if err == nil && len(deleted)+len(owned)+len(routes) == 0 {
		fmt.Fprintln(w, "nothing of a kube-proxy is in the kernel")
	}
}
