// Kube-proxy connects clients to services: it listens on the port of each service in a registry, and connects each client to one of
// that service's endpoints.
//
//	kube-proxy -etcd_servers=URL[,URL...] [flags]
//	kube-proxy -etcd_config=FILE          [flags]
//	kube-proxy -master=URL                [flags]
//	kube-proxy -kubeconfig=FILE           [flags]
//	kube-proxy -registry_dir=DIRECTORY    [flags]
//	kube-proxy check                      [flags] [DIRECTORY]
//	kube-proxy register -service=NAME     [flags] [-- COMMAND ...]
//	kube-proxy get|rm                     [flags] SERVICE
//	kube-proxy cleanup                    [flags]
//	kube-proxy help                       [WORD]
//
// This package reads the command line, makes the parts of the program from it, and handles signals and errors. Packages config and
// proxy describe what happens to a record and to a connection; package cmd/internal/node connects them. docs/operating.md leads to
// every flag, signal and exit status for operators, docs/check.md the word check, and docs/register.md the words register, get and rm.
//
// # The command line
//
// It is v0.4's; package cmd/internal/commandline reads it, and explains it. Each flag belongs to a topic (flags.go, commandline.go). Values are
// checked when they are parsed. That package also reads the file of -config, whose values fill in what the command line leaves.
// Contradictions between flags are found after that (contradictions.go). Either error ends the program with one line and status 2, before
// it has read another file.
//
// source.go checks what the flags say of sources, and makes the [config.Source] values in their order of precedence. A source has a file
// of its own for its flags, as etcd.go, master.go and files.go. Only check.go, which reads a registry once, also knows which sources
// there are.
//
// # Its life
//
// It starts whether a source can be reached or not, and opens its first port when it has read everything once (serve.go).
// SIGTERM or SIGINT closes the listeners and drains; a second signal ends the program at once. SIGHUP or SIGUSR1 reopens the logs;
// SIGHUP has the file of -config read again, too (reload.go).
// SIGUSR2 starts a successor (package cmd/internal/upgrade), which takes over what this process serves; package takeover says how.
// Under systemd it is of Type=notify (notify.go).
//
// # Exit status
//
//	0  a clean stop, -version, -help
//	1  it could not start or continue, or a file cannot be used: the last line of the log says why.
//	   After check: a record is wrong, or the records could not be read.
//	   After cleanup: something of a kube-proxy is still in the kernel, or that is not known.
//	2  the command line or the file of -config is wrong, or flags contradict each other: one line says how
package main
