package statuspage

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/config"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// TestWhatClientsFeltIsOverAfterFiveMinutes, whether or not somebody looked in between.
func TestWhatClientsFeltIsOverAfterFiveMinutes(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(1)
			p := s.page(t)
			time.Sleep(time.Hour)
			s.mu.Lock()
			s.totals[0].Ended[traffic.ServiceLimit] = 1
			s.mu.Unlock()
			if watched {
				if r := p.Report(); r.OK {
					t.Error("at once, the page says that all is well")
				}
			}
			time.Sleep(6*time.Minute + time.Second)
			s.sources[0].(*fakeSource).status.Current = time.Now()
			if r := p.Report(); r.Verdict != "All is well." {
				t.Errorf("watched %v: after six minutes the page says %q", watched, r.Verdict)
			}
		})
	}
}

// TestAServiceThatIsDrainedOnPurposeIsNoOutage: a refusal of last week is nothing that its clients feel.
func TestAServiceThatIsDrainedOnPurposeIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(2)
		s.totals[0].Ended[traffic.ZeroWeight] = 1
		p := s.page(t)
		time.Sleep(time.Hour)
		s.drain(numbered(0))
		s.sources[0].(*fakeSource).status.Connected = false
		if r := p.Report(); !strings.HasPrefix(r.Verdict, "etcd cannot be read") {
			t.Errorf("the first sentence is %q", r.Verdict)
		}
	})
}

// TestClientsThatALimitOrAMissingHeaderTurnsAwayAreNamed, with what it is, on the page of the node and on that of the service.
func TestClientsThatALimitOrAMissingHeaderTurnsAwayAreNamed(t *testing.T) {
	for _, l := range advice.Refusals {
		s := newSite(1)
		for _, r := range traffic.Reasons() {
			if r.String() == l.Code {
				s.totals[0].Ended[r] = 1
			}
		}
		says := "Clients of default/service-00000 over tcp were turned away in the last five minutes: "
		if r := s.totals[0].Ended; r == [traffic.NumReasons]uint64{} { // it is one of UDP alone
			says = "Datagrams of default/service-00000 were dropped in the last five minutes: "
			s.totals[0].Protocol, s.ports[0].ID.Protocol = registry.UDP, registry.UDP
			for i, r := range traffic.DropReasons() {
				if r.Code() == l.Code {
					s.totals[0].Dropped[i] = 1
				}
			}
		}
		r := s.page(t).Report()
		if len(r.Problems) != 1 || !strings.HasPrefix(r.Verdict, says+l.Text) {
			t.Errorf("%s: the problems are %q", l.Code, r.Problems)
		}
		if r, _ := s.page(t).ReportOf(numbered(0)); r.OK {
			t.Errorf("%s: the service is well", l.Code)
		}
	}
}

// TestThePageHasASentenceForEachReasonForWhichDatagramsAreDropped, unless it is as meant, or the condition of the service says it.
func TestThePageHasASentenceForEachReasonForWhichDatagramsAreDropped(t *testing.T) {
	without := []traffic.DropReason{traffic.DropNoLocalEndpoint, traffic.DropSource, traffic.DropLoop, traffic.DropNotSent, traffic.DropTooLong,
		traffic.DropEnded, traffic.DropClient, traffic.DropShutdown,
		traffic.DropNoEndpoints, traffic.DropZeroWeight, traffic.DropAllFailed, traffic.DropOwnListener, traffic.DropNotAllowed,
		traffic.DropUnreachable, traffic.DropUnresolved}
	for _, r := range traffic.DropReasons() {
		got := slices.ContainsFunc(advice.Refusals, func(l advice.Refusal) bool { return l.Code == r.Code() })
		if want := !slices.Contains(without, r); got != want {
			t.Errorf("there is a sentence for %s: %t; want %t", r.Code(), got, want)
		}
	}
}

// TestDescriptorsThatAreUsedUpComeFirst: new TCP clients wait where one descriptor is left, for each takes two.
func TestDescriptorsThatAreUsedUpComeFirst(t *testing.T) {
	for used, want := range map[int]string{98: "The limit of descriptors is nearly reached", 99: "The descriptors are used up (100), so new TCP clients wait", 100: "The descriptors are used up (100)"} {
		s := newSite(1)
		s.limits[0] = traffic.Limit{Name: "descriptors", Used: used, Max: 100}
		s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: "/registry/services/specs/bad", Reason: "no JSON"}}
		r := s.page(t).Report()
		if first := strings.HasPrefix(r.Verdict, want); first != (used > 98) || !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("%d of 100: the page says %q", used, r.Problems)
		}
	}
}

func TestALimitThatIsReachedIsNotNearlyReached(t *testing.T) {
	s := newSite(1)
	s.limits[0].Used = s.limits[0].Max
	if r := s.page(t).Report(); !strings.HasPrefix(r.Verdict, "The limit of connections is reached (all 100 are used)") {
		t.Errorf("the page says %q", r.Verdict)
	}
}
