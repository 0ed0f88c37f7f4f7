package tcp

import (
	"testing"
	"time"

	"kubeproxy/proxy/sockopt"
)

func TestAPeerHasVanishedThatAnswersNothing(t *testing.T) {
	gone := sockopt.Delivery{Pending: true, Unanswered: Probes, Silent: time.Minute}
	for name, c := range map[string]struct {
		change func(*sockopt.Delivery)
		want   bool
	}{
		"gone":                           {func(*sockopt.Delivery) {}, true},
		"nothing was sent to it":         {func(d *sockopt.Delivery) { d.Pending = false }, false},
		"it was asked too seldom":        {func(d *sockopt.Delivery) { d.Unanswered-- }, false},
		"it has said something lately":   {func(d *sockopt.Delivery) { d.Silent-- }, false},
		"the kernel does not tell of it": {func(d *sockopt.Delivery) { *d = sockopt.Delivery{} }, false},
	} {
		d := gone
		c.change(&d)
		if got := HasVanished(d, 15*time.Second); got != c.want {
			t.Errorf("%s: it has vanished: %v", name, got)
		}
	}
}
