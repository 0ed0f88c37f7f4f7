package check

import (
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/config/records/recordstest"
)

func TestWhatIsSaidOfSlices(t *testing.T) {
	const (
		web  = `{"port":8000}`
		s1   = "endpointslices/default/web-1"
		s2   = "endpointslices/default/web-2"
		some = "specs/web"
	)
	slice := recordstest.Slice
	only := Options{AllowEndpoint: func(a netip.Addr) bool { return a.Is4() && a.As4()[0] == 10 }}
	for _, c := range []struct {
		name string
		in   Registry
		with Options
		want []string
	}{
		{"nothing wrong", stored(some, web, s1, slice("web", "10.0.0.1:80"), s2, slice("web", "10.0.0.2:80")), Options{}, nil},
		{"beside a record of endpoints", stored(some, web, s1, slice("web", "10.0.0.1:80"), "endpoints/web", `{"endpoints":["192.0.2.1:80"]}`), only, []string{
			"endpoints/web: info superseded: is not in force: its service has endpoint slices, which come first"}},
		{"without a service", stored(s1, slice("web", "10.0.0.1:80"), s2, slice("web", "10.0.0.1:80")), Options{}, []string{
			s1 + ": warning no-service: there is no service web",
			s2 + ": warning no-service: there is no service web"}},
		{"of a service that cannot be used", stored(some, `{`, s1, slice("web", "10.0.0.1:80")), Options{}, []string{
			s1 + ": warning no-service: the record of its service cannot be used",
			"specs/web: error bad-record: not valid JSON: unexpected end of JSON input at byte 1"}},
		{"that cannot be used", stored(some, web, s1, `{"addressType":"IPv4"}`), Options{}, []string{
			s1 + ": error bad-record: no label kubernetes.io/service-name, so the slice belongs to no service",
			"specs/web: warning no-endpoints: there are no endpoints of this name"}},
		{"without endpoints", stored(some, web, s1, slice("web")), Options{}, []string{
			"specs/web: warning no-endpoints: its endpoint slices name no endpoint that can be used"}},
		{"of other ports", stored(some, `{"ports":[{"name":"a","port":8000}]}`, s1, slice("web", "10.0.0.1:80")), Options{}, []string{
			`specs/web: warning no-endpoints-for-port: no endpoint serves tcp 8000 (port named "a"); its endpoints serve the unnamed port`}},
		{"that are for another proxy", stored(some, web, "endpoints/web", `{"endpoints":["10.0.0.1:80"]}`,
			s1, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"x"}}}`), Options{}, []string{
			s1 + ": info excluded: its labels say that it is not for this proxy"}},
		{"with a flat key", stored(some, web, "endpointslices/web-1", slice("web", "10.0.0.1:80")), Options{}, []string{
			"endpointslices/web-1: error bad-key: key has one segment below /registry/services/endpointslices/, where a namespace and a name are wanted",
			"specs/web: warning no-endpoints: there are no endpoints of this name"}},
		{"a loop in one of them", stored(some, web, s1, slice("web", "127.0.0.1:8000"), s2, slice("web", "10.0.0.1:80")), Options{}, []string{
			s1 + ": error own-listener: the proxy's own listeners: tcp 127.0.0.1:8000"}},
		{"an address that is not allowed in one of them", stored(some, web, s1, slice("web", "10.0.0.1:80"), s2, slice("web", "192.0.2.1:80")), only, []string{
			s2 + ": error forbidden-endpoint: -allowed_endpoints does not allow tcp 192.0.2.1:80"}},
		{"terminating, and nobody is sent there", stored(some, web, s1, slice("web", "10.0.0.1:80"), s2, slice("web", "terminating 192.0.2.1:80")), only, nil},
		{"terminating, and there is nobody else", stored(some, web, s1, slice("web"), s2, slice("web", "terminating 192.0.2.1:80")), only, []string{
			s2 + ": error forbidden-endpoint: -allowed_endpoints does not allow tcp 192.0.2.1:80"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := findings(Examine(c.in, c.with)), strings.Join(c.want, "\n"); got != want {
				t.Errorf("found\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestSlicesAreCountedByTheirServices(t *testing.T) {
	r := Examine(stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["10.0.0.9:80"]}`,
		"endpointslices/default/web-1", recordstest.Slice("web", "10.0.0.1:80", "10.0.0.2:80", "terminating 10.0.0.3:80"),
		"endpointslices/default/web-2", recordstest.Slice("web"),
		"endpointslices/default/web-3", `{"metadata":{"labels":{"service.kubernetes.io/headless":""}}}`), Options{})
	if s := r.Summary; s.Records != 5 || s.OK != 5 || s.Services != 1 || s.Endpoints != 1 || s.Listeners != 1 {
		t.Errorf("summary %+v", s)
	}
	want := []string{"1 endpoint", "2 endpoints and 1 terminating of web", "0 endpoints of web", "nothing to serve", "tcp 8000"}
	for i, v := range r.Records {
		if v.Holds != want[i] || v.Kind == "" {
			t.Errorf("%s, a %s, holds %q; want %q", v.Key, v.Kind, v.Holds, want[i])
		}
	}
}
