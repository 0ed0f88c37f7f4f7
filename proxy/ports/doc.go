// Package ports says whether a port may be opened now, as far as the rest of the machine is concerned.
//
// A [Gate] is asked before a port is opened, and told what became of the attempt. It keeps two rules:
//
//   - A port that another program had is left alone until it has been free for a time without interruption. A record may list the port of
//     sshd or of etcd: the restart of a program must not lose it its port.
//   - Open ports take at most a quarter of the range from which the kernel gives local ports to connections. If services had all of them, no
//     program of this machine could connect to anything.
//
// [InUse], [OwnLocal] and [ReadLocalRange] ask the system. The gate opens and closes nothing.
package ports
