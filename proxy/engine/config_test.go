package engine

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/removal"
)

// The shares that limits have by default: connections reach theirs before descriptors run out, and many
// listeners do not keep them from it.
func TestTheDefaultLimitsFitTheDescriptorLimit(t *testing.T) {
	for _, descriptors := range []int{64, 256, 1024, 20000, 1 << 20} {
		cfg := Config{}.withLimits(descriptors)
		if needed := 2*cfg.MaxConnections + cfg.MaxUDPSessions; needed > admit.ClientShare(descriptors) {
			t.Errorf("of %d descriptors, %d connections and %d sessions need %d", descriptors, cfg.MaxConnections, cfg.MaxUDPSessions, needed)
		}
		if left := admit.ClientShare(descriptors) - 2*cfg.MaxConnections - cfg.MaxUDPSessions; left > 1 {
			t.Errorf("of %d descriptors, %d are left to nobody", descriptors, left)
		}
		if err := cfg.problemsWithin(descriptors); err != nil {
			t.Errorf("the default limits are refused: %v", err)
		}
	}
	cfg := Config{}.withLimits(20000)
	if cfg.MaxConnectionsPerService != cfg.MaxConnections || cfg.MaxUDPSessionsPerService != cfg.MaxUDPSessions/2 {
		t.Errorf("one service may have %d of %d connections and %d of %d sessions; want all, of which the last are shared out, and half",
			cfg.MaxConnectionsPerService, cfg.MaxConnections, cfg.MaxUDPSessionsPerService, cfg.MaxUDPSessions)
	}
	if room := min(cfg.MaxConnections, (admit.ClientShare(20000)-10000)/2); room < 4000 {
		t.Errorf("10,000 listeners within 20,000 descriptors leave room for %d connections; want 4,000", room)
	}
	if room := admit.NewBudget(20000).Most; room < 10000 {
		t.Errorf("within 20,000 descriptors there may be %d listeners; want 10,000", room)
	}
	if cfg := (Config{MaxUDPSessions: 1 << 20}).withLimits(1024); cfg.MaxConnections < 1 {
		t.Errorf("with too many sessions there can be %d connections", cfg.MaxConnections)
	}
}

// A start that cannot fit says which limit it is, what it needs, what there is, and what to do.
func TestLimitsThatCannotFitAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want []string // parts of the error; none: there is none
	}{
		{Config{}, nil},
		{Config{MaxConnections: 9936}, nil},
		{Config{MaxConnections: 9937}, []string{"-max_connections=9937", "19874", "20000", "19872", "ulimit -n", "LimitNOFILE", "at most 9936"}},
		{Config{MaxConnectionsPerService: 20000}, []string{"-max_connections_per_service=20000", "40000", "at most 9936"}},
		{Config{MaxUDPSessions: 19873}, []string{"-max_udp_sessions=19873", "19873", "at most 19872"}},
		{Config{MaxUDPSessionsPerService: 30000}, []string{"-max_udp_sessions_per_service=30000", "at most 19872"}},
		{Config{MaxConnections: 7000, MaxUDPSessions: 5872}, nil},
		{Config{MaxConnections: 7000, MaxUDPSessions: 5873}, []string{"-max_connections=7000 and -max_udp_sessions=5873", "19873", "19872", "at most 6999 and 5873"}},
		{Config{MaxConnections: -1}, []string{"-max_connections=-1", "negative"}},
		{Config{MaxDialsPerEndpoint: -1}, []string{"-max_dials_per_endpoint=-1", "negative"}},
		{Config{MaxNewUDPSessions: -1}, []string{"-max_new_udp_sessions=-1", "negative"}},
		{Config{MaxNewUDPSessions: 1 << 30}, nil}, // who wants none
		{Config{MaxConnections: 9937, MaxUDPSessions: 19873}, []string{"-max_connections=9937", "-max_udp_sessions=19873"}},
		{Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}, nil},
		{Config{AllowedEndpoints: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}}, []string{"-allowed_endpoints", "::ffff:10.0.0.0/104"}},
		{Config{AllowedEndpoints: []netip.Prefix{{}}}, []string{"-allowed_endpoints"}},
		{Config{OnRemoval: removal.Policy{Close: true, After: -time.Second}}, []string{"-on_removal", "-1s"}},
	} {
		err := c.cfg.problemsWithin(20000)
		if err == nil {
			if c.want != nil {
				t.Errorf("%+v passes", c.cfg)
			}
			continue
		}
		if c.want == nil {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v\nlacks %q", err, part)
			}
		}
	}
}
