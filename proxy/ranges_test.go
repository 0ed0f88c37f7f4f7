package proxy

import (
	"strings"
	"testing"
)

func TestARangeThatHoldsNoPortIsRefusedByName(t *testing.T) {
	if err := (Config{AllowedPorts: []PortRange{{First: 80, Last: 80}, {First: 1024, Last: 65535}}}).Validate(); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]Config{
		"80-79": {AllowedPorts: []PortRange{{First: 80, Last: 79}}},
		"0-79":  {AllowedPorts: []PortRange{{First: 0, Last: 79}}},
		"70-60": {NamespacePorts: map[string][]PortRange{"team": {{First: 70, Last: 60}}}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "-allowed_ports") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want -allowed_ports and %s named", err, want)
		}
	}
}
