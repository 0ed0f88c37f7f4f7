// Package verbs has the commands that speak to a running node by its control socket, such as kube-proxy status. The program gives them their
// command lines, which say where the socket is.
package verbs
