package proxy

import (
	"strings"
	"testing"
)

func TestARangeThatHoldsNoPortIsRefusedByName(t *testing.T) {
	if err := (Config{AllowedPorts: []PortRange{{80, 80}, {1024, 65535}}}).Validate(); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]Config{
		"80-79": {AllowedPorts: []PortRange{{80, 79}}},
		"0-79":  {AllowedPorts: []PortRange{{0, 79}}},
		"70-60": {NamespacePorts: map[string][]PortRange{"team": {{70, 60}}}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "-allowed_ports") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want -allowed_ports and %s named", err, want)
		}
	}
}
