// Mutations breaks kube-proxy on purpose, in one way after the other, and has the torture find that out: a torture that finds nothing is
// worth no more than the faults that it would find.
//
// Each file of the directory patches is one way. It begins with what is wrong then, and with the flags of the torture that shows it; a patch
// against the present tree follows. Each program is built from the tree with one patch; the tree itself stays as it is. The program exits
// with 1 unless the torture finds a fault in each of them, in the time that it is given.
//
// A patch that no longer applies is made anew, with a change to the code that does what its first line says.
package main
