package rotation

import (
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// An endpoint that failed a client and passes its checks is well again without another client: while it restarted, fewer checks than
// -endpoint_check_fall had failed. Its time to return has to come first, or a check would undo what clients have just found.
func TestAPassingCheckStandsForTheClientThatFindsAnEndpointBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := numbered(1, 2).awake().endpoints[0]
		failing := func() bool { return !e.Status().FailingSince.IsZero() }
		e.Passed(registry.TCP)
		if e.known.Load() != nil {
			t.Error("a check of an endpoint that never failed leaves a record")
		}
		e.Failed(registry.TCP)
		e.Passed(registry.TCP)
		if !failing() || !e.passesOver(registry.TCP) {
			t.Error("a check ended the ejection before its time")
		}
		time.Sleep(health.FirstDown)
		e.Passed(registry.UDP)
		if !failing() {
			t.Error("a check over another protocol ended the ejection")
		}
		e.Passed(registry.TCP)
		if failing() || e.passesOver(registry.TCP) {
			t.Error("its time to return has come, a check passed, and it is still said to fail")
		}
		e.Failed(registry.TCP) // counts from the beginning
		if got := time.Until(e.Status().DownUntil); got != health.FirstDown {
			t.Errorf("it is ejected for %v, want %v", got, health.FirstDown)
		}
	})
}
