// Playground is the whole system in one process, to learn from and to break.
//
// It starts an etcd, three demo services with three backends each, and the proxy between them, connected as in kube-proxy (package
// cmd/internal/node). Then it prints a lesson: commands to paste into a shell, first to call the services, then to change the records.
// Nothing else has to be installed, and everything listens on 127.0.0.1 only.
//
//	curl or                    etcd ◀── playground put | get | del
//	playground call              │   files ◀── echo, rm
//	     │                       ▼ watch ▼
//	     └──────────────────▶  proxy  ──▶  web-1  web-2  web-3    HTTP
//	                                       echo-1 echo-2 echo-3   TCP: answers each line
//	                                       ping-1 ping-2 ping-3   UDP: answers each datagram
//
// The records are what a Kubernetes v0.4 master would have stored. Every backend answers with its own name, which shows the choice of
// the proxy: web-1, web-2, web-3, web-1.
//
// # Usage
//
//	playground                                    run until Ctrl-C
//	playground call [-n N] http|tcp|udp ADDRESS   call a service N times, each time as a new client
//	playground put [-etcd ADDRESS] KEY VALUE
//	playground get [-etcd ADDRESS] KEY            a KEY that ends in a slash: all keys below it
//	playground del [-etcd ADDRESS] KEY
//
// Records may also be files: the proxy reads a temporary directory beside etcd, as with -registry_dir. It is empty at first.
//
// Etcd listens on its usual port, 2379, and the services on 8100 to 8103 and 8105. Where a port is taken, the playground uses another
// one, says so, and prints its commands accordingly. The etcd at the usual port may then be another one, so put and del change nothing
// in an etcd that is not a playground's.
//
// The proxy logs at glog's level 2. -v=0 makes it quiet, and -v=4 shows all that it receives.
//
// Ctrl-C or SIGTERM stops it: the listeners close, and the backends, etcd, its data and the files are gone. The exit status is then 0.
// It is 1 after an error, and 2 for a wrong command line.
package main
