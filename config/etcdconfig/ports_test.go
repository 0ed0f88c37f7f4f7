package etcdconfig

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func TestPortsOfAnEtcdOnThisMachineAreKeptFromServices(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	lookup := func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		switch host {
		case "here.example":
			return []netip.Addr{netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("10.0.0.7")}, nil
		case "away.example":
			return []netip.Addr{netip.MustParseAddr("10.0.0.8")}, nil
		}
		return nil, errors.New("no such host")
	}
	for _, c := range []struct {
		urls []string
		want []uint16
	}{
		{[]string{"http://127.0.0.1:2379", "https://localhost:4001", "http://10.0.0.8:2380"}, []uint16{2379, 4001}},
		{[]string{"10.0.0.7:2379", "http://[fd00::7]:2381", "http://[::1]:2379"}, []uint16{2379, 2381}},
		{[]string{"http://here.example:1", "http://away.example:2"}, []uint16{1}},
		{[]string{"http://nobody.knows:3"}, []uint16{3}}, // rather too many
		{[]string{"http://10.0.0.8:2379", "http://10.0.0.7", "http://%zz"}, nil},
	} {
		if got := localPorts(t.Context(), c.urls, lookup, machine); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v; want %v", c.urls, got, c.want)
		}
	}
}
