package main

import (
	"os"
	"runtime"
)

// twoMoreThanProcessors lets two goroutines more run at a time than there are processors, unless the variable that
// the Go runtime has for this says how many. Decoding a large record and collecting the garbage of it compute for
// as long as there is a processor for each, and while the runtime has nothing idle it asks the kernel only every 10 ms
// whether some client has sent something. With more the kernel shares out the processors, as it does among programs,
// and clients do not wait. Besides, an event loop keeps one of the runtime's processors for a few milliseconds while it waits
// for the next event: see package reactor.
//
// The runtime then no longer follows a change of the CPU quota of our cgroup. Such a quota is still kept.
func twoMoreThanProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	}
}
