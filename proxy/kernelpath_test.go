package proxy

import (
	"net/netip"
	"testing"

	"kubeproxy/registry"
)

func TestTheKernelGetsNoClientsToWhomAFlagApplies(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*Config)
		want [2]bool
	}{
		{"no flag", func(*Config) {}, [2]bool{}},
		{"-max_connections_per_service", func(c *Config) { c.MaxConnectionsPerService = 1 }, [2]bool{registry.TCP: true}},
		{"-max_udp_sessions_per_service", func(c *Config) { c.MaxUDPSessionsPerService = 1 }, [2]bool{registry.UDP: true}},
		{"-max_connections_per_client", func(c *Config) { c.MaxConnectionsPerClient = 1 }, [2]bool{true, true}},
		{"-idle_timeout", func(c *Config) { c.IdleTimeout = 1 }, [2]bool{registry.TCP: true}},
		{"-proxy_protocol_from", func(c *Config) {
			c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}
		}, [2]bool{registry.TCP: true}},
	} {
		var cfg Config
		c.set(&cfg)
		if got := cfg.boundByFlags(); got != c.want {
			t.Errorf("%s: %v; want %v", c.name, got, c.want)
		}
	}
}
