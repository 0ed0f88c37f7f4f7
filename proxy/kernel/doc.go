// Package kernel has Linux carry the clients of some ports by destination NAT (nftables), so that their packets pass no process.
//
//	client ──▶ node:80 ──┬─ port in the map ──▶ dnat to an endpoint, masquerade ──▶ endpoint
//	                     └─ otherwise ────────▶ listener of the engine ──relay────▶ endpoint
//
// The engine's listener of a port stays open all the time. A client whose first packet finds the port in the map is the kernel's for as
// long as its connection lasts. All other clients reach the listener. So a port moves between kernel and userspace, either way, by one
// change of the map, and no client is refused meanwhile.
//
// # Which ports
//
// The kernel cannot try another endpoint, so it gets only endpoints that are checked ([kubeproxy/proxy/balance/checks]) and passed
// their last check. One failed check, or one failed attempt of a client, moves the port to userspace, where a client is given the next
// endpoint. When the checks of that endpoint have failed often enough, the port returns to the kernel without it. A service must want
// nothing else that the kernel does not do: [Judge] has the rules, and the [Reason] for each port that stays in userspace.
//
// # The table
//
//	table inet kube-proxy-PID-RANDOM {                    # flag owner: it belongs to our netlink socket
//	  map ports4     { l4proto . port : goto of4-N; counter }    # N is the number of endpoints
//	  map endpoints4 { l4proto . port . number : address . port }
//	  set senders4   { udp . port . address . port }      # an endpoint of the port, as its client
//	  set hosts4     { udp . port . address }             # likewise, where its port is that of the service
//	  set carried4   { l4proto . port . address . port }  # an endpoint of the port, now or within the last 20 s
//	  chain prerouting, output {                          # type nat, priority dstnat
//	    udp: jump senders
//	    from or to a loopback or link-local address: return
//	    fib daddr type != local: return
//	    daddr . l4proto . th dport vmap @portsAt4
//	    l4proto . th dport vmap @ports4
//	  }
//	  chain senders { port and source in @senders4 or @hosts4: accept }
//	  chain of4-3 { dnat ip to l4proto . th dport . numgen random mod 3 map @endpoints4 }
//	  chain postrouting {                                 # type nat, priority srcnat
//	    ct status dnat, not to the loopback interface
//	    l4proto . ct original proto-dst . ct reply saddr . ct reply proto-src @carried4: masquerade
//	  }
//	}
//
// The same is there for IPv6, and for ports of addresses: their sets (portsAt4 and so on) have keys that begin with the address. A port of an address that
// the kernel does not carry is in portsAt4 with the verdict return, if a service has the same port of the node: else its clients would go there.
//
// The rules are constant but for a chain for each number of endpoints. A change is one transaction that names
// the elements that differ, so its cost depends neither on the number of services nor on that of their endpoints. An endpoint that
// leaves gives its number to the last one: see [fill].
//
// Endpoints are chosen at random. Numbers in turn (numgen inc) would be one sequence for all ports with as many endpoints: with two
// services of two endpoints whose clients alternate, each service would have one endpoint that gets all clients.
//
// Over UDP, an endpoint that sends to its own service could be given its own datagrams, and each of its answers after that; and two nodes
// could send a datagram to each other. The kernel leaves such clients to the listener, which knows what to refuse them
// ([kubeproxy/proxy/admit.SessionKey.Loops]). An endpoint and its senders enter and leave in one transaction.
//
// Chains of type nat see the first packet of a connection only, so the counter of a port counts connections.
//
// Connections are masqueraded: an endpoint sees an address of the node, as it does with the engines, and its answers come back here. No
// mark is set, neither on packets nor on connections, because other programs may use any bit of them. So port and endpoint tell our connections
// from those that other programs translate; with a bind address, that too, for ports of the node.
//
// # How it ends
//
// The kernel deletes a table with the flag owner when the netlink socket is closed: at the end of the process, however it ends. No other process
// can delete or change it; a `flush ruleset` leaves it alone. Kernels before 5.12 do not know the flag, and carry nothing.
//
// While a successor takes over, both processes have a table. The successor makes its own before the predecessor's goes, or the
// kernel would stop to translate the packets of connections that it carries. (It does so when the last chain of type nat goes. Such
// connections are reset then, as those of a relay are when its process ends.)
//
// A process deletes its UDP flows at its end, but for those that another's table makes, and for all where a successor or predecessor serves its ports and
// has a table: rules of other programs may keep the kernel translating.
//
// UDP flows to an endpoint that leaves, refuses a check, or fails its checks are deleted from the connection table, so that the next datagram
// finds another endpoint. Replies that are on their way then are lost, so flows to the other endpoints go on, also while the port is
// userspace's: see [Node.Stay]. TCP connections go on.
//
// An earlier process may have left flows to endpoints that are gone by now. They are found in the connection table when a UDP port is first judged,
// and deleted likewise: see earlier.go.
//
// When an operation fails, the table is made anew, and its ports are carried by the engine meanwhile.
package kernel
