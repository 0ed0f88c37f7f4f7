package names

import (
	"strings"
	"testing"

	"kubeproxy/registry"
)

func TestNamesAreReadInOneForm(t *testing.T) {
	for _, c := range []struct {
		annotation string
		want       Names
		err        string
	}{
		{"10.0.0.2=b, 10.0.0.1:80=a", "10.0.0.1:80=a,10.0.0.2=b", ""},
		{"[fd00::3]:80=m 3,FD00::4=m4,db.example=m5", "[fd00::3]:80=m 3,db.example=m5,fd00::4=m4", ""},
		{"10.0.0.1=a=b", "10.0.0.1=a=b", ""},
		{"", "", `"" is no name of an address`},
		{"10.0.0.1", "", `"10.0.0.1" is no name of an address`},
		{"10.0.0.1=", "", `"10.0.0.1=" is no name of an address`},
		{"10.0.0.1:99999=a", "", "is no name of an address"},
		{"10.0.0.1=" + strings.Repeat("a", 254), "", "is no name of an address"},
		{"10.0.0.1=a,10.0.0.1=b", "", `"10.0.0.1" has two names`},
		{"fd00::1=a,fd00:0::1=b", "", "has two names"},
	} {
		got, err := Parse(c.annotation)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.60q: %q, error %v; want %q, %q", c.annotation, got, err, c.want, c.err)
		}
		if err == nil {
			if again, err := Parse(string(got)); again != got || err != nil {
				t.Errorf("%q is read as %q, %v", got, again, err)
			}
		} else if len(err.Error()) > 1000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestANameOfHostAndPortComesBeforeThatOfTheHost(t *testing.T) {
	of := Join("10.0.0.1=a,10.0.0.2=b", "", "10.0.0.1:80=c,10.0.0.2=d").Of()
	for text, want := range map[string]string{"10.0.0.1:80": "c", "10.0.0.1:81": "a", "10.0.0.2:80": "d", "10.0.0.3:80": ""} {
		addr, err := registry.ParseAddr(text)
		if got := of(addr); got != want || err != nil {
			t.Errorf("%s is called %q; want %q", text, got, want)
		}
	}
}
