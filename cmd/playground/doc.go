// Playground is the whole system in one process, to learn from and to break.
//
// It starts an etcd, three demo services with three backends each, and the proxy between them, wired
// as kube-proxy is (see package cmd/internal/node). Then it prints a lesson: commands that work when
// they are pasted into a shell, first to call the services, then to change what the proxy is told.
// Nothing else needs to be installed, and everything listens on 127.0.0.1 only.
//
//	curl or                    etcd ◀── playground put | get | del
//	playground call              │
//	     │                       ▼ watch
//	     └──────────────────▶  proxy  ──▶  web-1  web-2  web-3    HTTP
//	                                       echo-1 echo-2 echo-3   TCP: answers each line
//	                                       ping-1 ping-2 ping-3   UDP: answers each datagram
//
// The records are what a Kubernetes v0.4 master would have stored. Every backend answers with its
// own name, so one sees the proxy choose: web-1, web-2, web-3, web-1.
//
// # Usage
//
//	playground                                    run until Ctrl-C
//	playground call [-n N] http|tcp|udp ADDRESS   call a service N times, each time as a new client
//	playground put [-etcd ADDRESS] KEY VALUE
//	playground get [-etcd ADDRESS] KEY            a KEY that ends in a slash: all keys below it
//	playground del [-etcd ADDRESS] KEY
//
// Etcd listens on its usual port, 2379, and the services on 8100 to 8103. Where a port is taken
// another one is used; the playground says so, and prints its commands accordingly. Since another
// etcd may be what is found at the usual port, put and del leave alone what is not a playground's.
//
// While it runs the proxy tells what it does, at glog's level 2. -v=0 makes it quiet, -v=4 shows
// all that it receives.
//
// Ctrl-C or SIGTERM stops it: the listeners close, the backends, etcd, and etcd's data are gone.
// The exit status is 0 then, 1 when something went wrong, and 2 for a command line that it does not
// understand.
package main
