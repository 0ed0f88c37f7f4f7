// Package apiserver is an API server with a registry in memory, for tests and measurements. It answers lists and watches as the servers of
// Kubernetes 0.4.4, 0.5.4 and 1.36.3 were seen to (testdata of package apisource has what they said), and can be broken in the ways in
// which these were seen to break.
package apiserver
