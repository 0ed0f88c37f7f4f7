package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// A process that is being started has copies of all descriptors of its parent until it executes its program, also of a socket that was closed
// meanwhile. Some hundred ports are found beside others that start processes. Claims are this test's own, and so is the range: other tests, which do not
// see these claims, look above 10000.
func TestAPortThatIsFoundCanBeListenedOnWhileProcessesStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done := make(chan struct{})
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				cmd := exec.Command(os.Args[0], "-test.run=^$")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
	}
	defer starters.Wait()
	defer close(done)
	for range 300 {
		port, err := FreePorts(3000, 6900, 1)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
