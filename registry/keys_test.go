package registry

import (
	"errors"
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	for _, c := range []struct {
		key  string
		want Key
	}{
		{"/registry/services/specs/x", Key{KindService, Name{"default", "x"}, true}},
		{"/registry/services/specs/default/x", Key{KindService, Name{"default", "x"}, false}},
		{"/registry/services/specs/prod/x", Key{KindService, Name{"prod", "x"}, false}},
		{"/registry/services/endpoints/x", Key{KindEndpoints, Name{"default", "x"}, true}},
		{"/registry/services/endpoints/prod/x", Key{KindEndpoints, Name{"prod", "x"}, false}},
		{"/registry/services/specs/prod/" + strings.Repeat("n", 253), Key{KindService, Name{"prod", strings.Repeat("n", 253)}, false}},
		// D21: v0.4 took any key with "/endpoints/" in it for endpoints.
		{"/registry/services/specs/endpoints/x", Key{KindService, Name{"endpoints", "x"}, false}},
		{"/registry/services/endpointslices/prod/x-1", Key{KindEndpointSlice, Name{"prod", "x-1"}, false}},
		{"/registry/services/endpoints/endpointslices/x", Key{KindEndpoints, Name{"endpointslices", "x"}, false}},
		{"/registry/services/specs/..", Key{KindService, Name{"default", ".."}, true}},
		{"/registry/services/specs/a b\n\xff", Key{KindService, Name{"default", "a b\n\xff"}, true}},
	} {
		if got, err := ParseKey(c.key); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.key, got, err, c.want)
		}
	}
	const foreign = "neither a service spec, nor endpoints, nor an endpoint slice"
	for _, c := range []struct{ key, err string }{
		{"", foreign},
		{"/registry/services/", foreign},
		{"/registry/services/specs", foreign},
		{"/registry/services/specs-x/y", foreign},
		{"/registry/services/other/x", foreign},
		{"/registry/pods/x", foreign},
		{"/registry/services/endpointslices", foreign},
		{"/registry/endpointslices/default/x", foreign}, // where Kubernetes itself has them: not below the prefix
		{"/registry/services/endpointslices/x", "key has one segment below /registry/services/endpointslices/, where a namespace and a name are wanted"},
		{"/registry/services/endpointslices/", "empty name in key"},
		{"/registry/services/endpointslices/a/b/c", "key has more than two segments below /registry/services/endpointslices/"},
		{"registry/services/specs/x", foreign}, // etcd v2 knew no difference, etcd v3 does
		{"/registry/services/specs/", "empty name in key"},
		{"/registry/services/specs/prod/", "empty name in key"},
		{"/registry/services/specs//", "empty name in key"},
		{"/registry/services/endpoints//x", "empty namespace in key"},
		{"/registry/services/endpoints/a/b/c", "key has more than two segments below /registry/services/endpoints/"},
		{"/registry/services/specs/" + strings.Repeat("n", 254), "name of 254 bytes in key is longer than 253"},
		{"/registry/services/endpoints/prod/" + strings.Repeat("n", 1400000), "name of 1400000 bytes in key is longer than 253"},
		{"/registry/services/specs/" + strings.Repeat("n", 254) + "/x", "namespace of 254 bytes in key is longer than 253"},
		{"/registry/services/specs/a/b/", "key has more than two segments below /registry/services/specs/"},
	} {
		got, err := ParseKey(c.key)
		if err == nil || err.Error() != c.err || errors.Is(err, ErrForeign) != (c.err == foreign) || got != (Key{}) {
			t.Errorf("%q: %+v, %v; want %q", c.key, got, err, c.err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, key := range []string{"specs/frontend", "specs/prod/frontend", "endpoints/frontend", "endpoints/prod/frontend", "endpointslices/a/b",
		"endpoints//\xff", "specs/a/b/c", "specs/"} {
		f.Add(Prefix + key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		k, err := ParseKey(key)
		if err != nil {
			checkLine(t, err.Error())
			isRecord := strings.HasPrefix(key, SpecsPrefix) || strings.HasPrefix(key, EndpointsPrefix) || strings.HasPrefix(key, EndpointSlicesPrefix)
			if errors.Is(err, ErrForeign) == isRecord {
				t.Errorf("%q: %v", key, err)
			}
			return
		}
		checkLine(t, k.Name.String())
		checkLine(t, PortKey{k.Name, key}.String())
		back := map[Kind]string{KindService: SpecsPrefix, KindEndpoints: EndpointsPrefix, KindEndpointSlice: EndpointSlicesPrefix}[k.Kind]
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
