package registry

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseAddr(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := label + "." + label + "." + label + "." + label[:61]
	for _, c := range []struct{ in, want string }{
		{"10.244.1.5:80", "10.244.1.5:80"},
		{"127.0.0.1:1", "127.0.0.1:1"},
		{"10.0.0.1:65535", "10.0.0.1:65535"},
		{"[2001:DB8::0:5]:80", "[2001:db8::5]:80"},
		{"[fe80::1%eth0.4]:80", "[fe80::1%eth0.4]:80"},
		{"[fe80::1%2]:80", "[fe80::1%2]:80"},
		{"[::ffff:10.0.0.1]:80", "10.0.0.1:80"},
		{"[10.0.0.1]:80", "10.0.0.1:80"},
		{"localhost:80", "localhost:80"},
		{"Web-1.Example.internal.:80", "Web-1.Example.internal.:80"},
		{"my_app_1:80", "my_app_1:80"},
		{"1.db:80", "1.db:80"},
		{"3f2a9c1b2d4e:80", "3f2a9c1b2d4e:80"},
		{longest + ":80", longest + ":80"},
		{longest + ".:80", longest + ".:80"},
	} {
		a, err := ParseAddr(c.in)
		if err != nil || a.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", Quote(c.in), a, err, c.want)
			continue
		}
		checkAddr(t, a)
	}
	for _, c := range []struct{ in, err string }{
		{"", "missing port in address"},
		{"10.0.0.1", "missing port in address"},
		{"::1:80", "too many colons in address"},
		{"[::1]", "missing port in address"},
		{"[::1:80", "missing ']' in address"},
		{":80", "no host"},
		{"[]:80", "no host"},
		{"10.0.0.1:", "no port"},
		{"10.0.0.1:0", "port is not between 1 and 65535"},
		{"10.0.0.1:65536", "port is not between 1 and 65535"},
		{"10.0.0.1:99999999999999999999", "port is not between 1 and 65535"},
		{"10.0.0.1:-1", "port is not a plain decimal number"},
		{"10.0.0.1:+80", "port is not a plain decimal number"},
		{"10.0.0.1:080", "port is not a plain decimal number"},
		{"10.0.0.1:00", "port is not a plain decimal number"},
		{"10.0.0.1:0x50", "port is not a plain decimal number"},
		{"10.0.0.1:http", "port is not a plain decimal number"},
		{"10.0.0.1:80 ", "port is not a plain decimal number"},
		{"10.0.0.1:٨٠", "port is not a plain decimal number"},
		{"0.0.0.0:80", "unspecified address"},
		{"[::]:80", "unspecified address"},
		{"[::ffff:0.0.0.0]:80", "unspecified address"},
		{"[::%eth0]:80", "unspecified address"},
		{"224.0.0.1:80", "multicast address"},
		{"239.255.255.255:80", "multicast address"},
		{"[ff02::1%eth0]:80", "multicast address"},
		{"[::ffff:224.0.0.1]:80", "multicast address"},
		{"255.255.255.255:80", "broadcast address"},
		{"[::ffff:255.255.255.255]:80", "broadcast address"},
		{"[fe80::1%a\nb]:80", "zone is not an interface name"},
		{"[fe80::1%" + strings.Repeat("e", 16) + "]:80", "zone is not an interface name"},
		{"10.0.0.256:80", "neither an address nor a host name"},
		{"10.1:80", "neither an address nor a host name"},
		{"10.0.0.1.:80", "neither an address nor a host name"},
		{"167772161:80", "neither an address nor a host name"},
		{"0x7f000001:80", "neither an address nor a host name"},
		{"host.0X7F:80", "neither an address nor a host name"},
		{".:80", "neither an address nor a host name"},
		{"a..b:80", "neither an address nor a host name"},
		{".a:80", "neither an address nor a host name"},
		{"-a:80", "neither an address nor a host name"},
		{"a-:80", "neither an address nor a host name"},
		{"a b:80", "neither an address nor a host name"},
		{" a:80", "neither an address nor a host name"},
		{"a/b:80", "neither an address nor a host name"},
		{"user@a:80", "neither an address nor a host name"},
		{"bücher.example:80", "neither an address nor a host name"},
		{"\x00:80", "neither an address nor a host name"},
		{label + "a:80", "neither an address nor a host name"},
		{longest + "a:80", "neither an address nor a host name"},
		{longest + "a.:80", "host is too long"},
		{strings.Repeat("a.", 200) + ":80", "host is too long"},
	} {
		a, err := ParseAddr(c.in)
		if err == nil || err.Error() != c.err {
			t.Errorf("%s: %q, %v; want %q", Quote(c.in), a, err, c.err)
		}
	}
}

func TestAddrAsText(t *testing.T) {
	for _, c := range []struct {
		addr Addr
		want string
	}{
		{Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, "10.0.0.1:80"},
		{Addr{IP: netip.MustParseAddrPort("[2001:db8::1]:80")}, "[2001:db8::1]:80"},
		{Addr{IP: netip.MustParseAddrPort("[fe80::1%eth0]:80")}, "[fe80::1%eth0]:80"},
		{Addr{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "db.example"}, "db.example:80"},
	} {
		if got := c.addr.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// checkAddr holds an address to the promises of ParseAddr.
func checkAddr(t testing.TB, a Addr) {
	t.Helper()
	checkLine(t, a.String())
	if a.IP.Addr().IsValid() == (a.Host != "") || a.IP.Port() == 0 || a.IP.Addr().IsUnspecified() {
		t.Errorf("%#v cannot be dialled", a)
	}
	if again, err := ParseAddr(a.String()); err != nil || again != a {
		t.Errorf("%q is read back as %v, %v", a.String(), again, err)
	}
}

func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"10.0.0.1:80", "[fe80::1%eth0]:80", "[::ffff:1.2.3.4]:1", "web_1.example.:65535", "a:080", ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			checkLine(t, err.Error())
			return
		}
		checkAddr(t, a)
	})
}

func TestAddressesHaveAnOrder(t *testing.T) {
	var sorted []Addr
	for text := range strings.FieldsSeq("10.0.0.1:1 10.0.0.1:2 10.0.0.2:1 [::1]:1 [fd00::1]:1 a:1 a:2 b:1") {
		a, err := ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		sorted = append(sorted, a)
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := a.Compare(b), i-j; got*want < 0 || (got == 0) != (want == 0) {
				t.Errorf("%v compared with %v: %d", a, b, got)
			}
		}
	}
}
