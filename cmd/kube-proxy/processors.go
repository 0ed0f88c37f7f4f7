package main

import (
	"os"
	"runtime"
)

// oneMoreThanProcessors lets one goroutine more run at a time than there are processors, unless the variable that
// the Go runtime has for this says how many. Decoding a large record and collecting the garbage of it compute for
// as long as there is a processor for each, and while the runtime has nothing idle it asks the kernel only every 10 ms
// whether some client has sent something. With one more the kernel shares out the processors, as it does among programs,
// and clients do not wait.
//
// The runtime then no longer follows a change of the CPU quota of our cgroup. Such a quota is still kept.
func oneMoreThanProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}
