package anyip

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWhichRangesServicesCannotHave(t *testing.T) {
	interfaces := []Interface{
		{"lo", netip.MustParsePrefix("127.0.0.1/8")}, {"lo", netip.MustParsePrefix("::1/128")},
		{"eth0", netip.MustParsePrefix("10.0.0.5/24")}, {"eth0", netip.MustParsePrefix("fd00::5/64")}, {"dummy0", netip.MustParsePrefix("10.96.0.1/32")},
	}
	for _, c := range []struct{ ranges, err string }{
		{"10.97.0.0/16,fd01::/108", ""},
		{"10.0.0.0/8", "10.0.0.0/8 overlaps 10.0.0.5/24 of eth0"},
		{"10.0.0.128/25", "10.0.0.128/25 overlaps 10.0.0.5/24 of eth0"},
		{"10.96.0.0/12", "10.96.0.0/12 overlaps 10.96.0.1/32 of dummy0"},
		{"fd00::1:0/112", "fd00::1:0/112 overlaps fd00::5/64 of eth0"},
		{"127.77.0.0/16", "127.77.0.0/16 overlaps 127.0.0.1/8 of lo"},
		{"10.97.0.0/16,10.97.4.0/24", "10.97.0.0/16 and 10.97.4.0/24 overlap"},
		{"0.0.0.0/0", "which no service can have"},
		{"::/0", "which no service can have"},
		{"224.0.0.0/24", "which no service can have"},
		{"fe80::/64", "which no service can have"},
		{"::ffff:10.97.0.0/112", "an IPv4 range is written as"},
	} {
		var ranges []netip.Prefix
		for r := range strings.SplitSeq(c.ranges, ",") {
			ranges = append(ranges, netip.MustParsePrefix(r))
		}
		if err := Check(ranges, interfaces); c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v; want %q", c.ranges, err, c.err)
		}
	}
}
