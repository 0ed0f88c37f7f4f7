package tcp

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A dial for which this machine lacks descriptors, memory, or room for what epoll watches says nothing of its endpoint.
func TestNoEndpointIsToBlameForWhatThisMachineLacks(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := follow(t, "1 2", registry.Terms{})
				f.says("dial 2")
				f.race.Failed(monotonic.Now(), f.ended("2"), os.NewSyscallError("dial", errno))
				f.says("gives up")
				f.blames("", "2")
				f.isTurnedAway(traffic.DescriptorLimit, 0)
			})
		})
	}
}
