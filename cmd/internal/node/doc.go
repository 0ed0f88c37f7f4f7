// Package node wires the rooms of the program together: it is what kube-proxy and the playground
// have in common, and the place to begin reading.
//
//	etcd ─▶ Source ─▶ Mux ─▶ store ─▶ Broadcaster ─▶ LoadBalancerRR, Proxier ─▶ sockets
//	        what is wanted                           makes it so
//
// [Run] is all there is. What flows through it, from left to right, are the words of package
// registry: an Update for each step of the source, a Batch for each step of the handlers.
package node
