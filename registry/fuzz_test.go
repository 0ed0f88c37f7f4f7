package registry

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// checkDecode holds Decode to the promises of the package for one record.
func checkDecode(t *testing.T, key string, value []byte) {
	r, warnings, err := Decode(key, value)
	checkAnswer(t, r, warnings, err)
	again, warningsAgain, errAgain := Decode(key, value)
	if !reflect.DeepEqual(r, again) || !reflect.DeepEqual(warnings, warningsAgain) || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
		t.Errorf("decoded twice: %v, %q, %v and %v, %q, %v", r, warnings, err, again, warningsAgain, errAgain)
	}
}

// seed adds the fixtures of one kind, small ones first of all: the fuzzer mutates what it is given.
func seed(f *testing.F, prefix string) {
	for _, x := range fixtures(f) {
		if value := x.value(f); strings.HasPrefix(x.Key, prefix) && len(value) < 8<<10 {
			f.Add(value)
		}
	}
}

func FuzzDecodeService(f *testing.F) {
	seed(f, SpecsPrefix)
	f.Fuzz(func(t *testing.T, value []byte) { checkDecode(t, SpecsPrefix+"prod/frontend", value) })
}

func FuzzDecodeEndpoints(f *testing.F) {
	seed(f, EndpointsPrefix)
	f.Fuzz(func(t *testing.T, value []byte) { checkDecode(t, EndpointsPrefix+"frontend", value) })
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
		checkAddrs(t, "", []Addr{a})
	})
}

func FuzzParseKey(f *testing.F) {
	for _, x := range fixtures(f) {
		f.Add(x.Key)
	}
	f.Add("/registry/services/endpoints//\xff")
	f.Fuzz(func(t *testing.T, key string) {
		k, err := ParseKey(key)
		if err != nil {
			checkLine(t, err.Error())
			isRecord := strings.HasPrefix(key, SpecsPrefix) || strings.HasPrefix(key, EndpointsPrefix)
			if errors.Is(err, ErrForeign) == isRecord {
				t.Errorf("%q: %v", key, err)
			}
			return
		}
		checkLine(t, k.Name.String())
		checkLine(t, PortKey{k.Name, key}.String())
		back := map[Kind]string{KindService: SpecsPrefix, KindEndpoints: EndpointsPrefix}[k.Kind]
		if k.Flat {
			if k.Name.Namespace != DefaultNamespace {
				t.Errorf("%q: flat, and in namespace %q", key, k.Name.Namespace)
			}
		} else {
			back += k.Name.Namespace + "/"
		}
		if back += k.Name.Name; back != key || k.Name.Name == "" || k.Name.Namespace == "" {
			t.Errorf("%q is read as %+v, which would be %q", key, k, back)
		}
	})
}
