// Package conformancetest holds the promises that every engine of package proxy keeps to clients and endpoints, as tests: real sockets
// on both sides, the exported API in between, and nothing of what is inside. An engine runs all of them with one line:
//
//	func TestConformance(t *testing.T) { conformancetest.Run(t, proxy.Portable) }
//
// Each promise is a method of suite whose name begins with Test. Those in files for Linux need network namespaces, limits of the
// process, or /proc; the others run on every system. One test alone is run by
//
//	go test ./proxy/portable -run 'TestConformance/TestDataPassesThroughTheProxyAndBack$'
package conformancetest
