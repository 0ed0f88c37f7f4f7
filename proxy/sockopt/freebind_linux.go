package sockopt

import "golang.org/x/sys/unix"

// BindAnywhere lets an IPv6 socket be bound to an address that no interface has (ipv6(7), IPV6_FREEBIND). An IPv4 socket may be bound to each
// address that is routed to this machine.
func BindAnywhere(fd int) error { return Set(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1) }
