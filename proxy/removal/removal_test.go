package removal

import (
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/traffic"
)

func TestConnectionsOfALifetimeEndWhenThePolicySays(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name string
		then Policy
		ago  time.Duration // how long ago it ended, when the policy is applied
		want time.Duration
	}{
		{"they go on", Policy{}, 0, never},
		{"at once", Policy{Close: true}, 0, 0},
		{"after a while", Policy{Close: true, After: 10 * time.Second}, 0, 10 * time.Second},
		{"after the rest of a while that began at a predecessor", Policy{Close: true, After: 10 * time.Second}, 4 * time.Second, 6 * time.Second},
		{"at once, since the while is over", Policy{Close: true, After: 10 * time.Second}, 10 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := new(Lifetime)
				if of.IsOver() || of.Ago() != 0 || of.Context().Err() != nil {
					t.Fatal("it is over before its end")
				}
				of.End(c.then, traffic.EndpointRemoved, c.ago)
				if !of.IsOver() || of.Ago() != max(1, c.ago) {
					t.Errorf("over: %t, since %v; want since %v", of.IsOver(), of.Ago(), max(1, c.ago))
				}
				start, got := time.Now(), never
				select {
				case <-of.Context().Done():
					got = time.Since(start)
				case <-time.After(never):
				}
				if got != c.want {
					t.Errorf("connections end after %v; want %v", got, c.want)
				}
				if got < never && ReasonOf(of.Context()) != traffic.EndpointRemoved {
					t.Errorf("they end for %v", ReasonOf(of.Context()))
				}
			})
		})
	}
}

func TestNoLifetimeIsNeverOver(t *testing.T) {
	var of *Lifetime
	if of.IsOver() || of.Ago() != 0 {
		t.Error("it is")
	}
}
