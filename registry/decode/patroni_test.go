package decode

import (
	"fmt"
	"strings"
	"testing"
)

// What annotations about an election do not go together with is an error that says so.
func TestAnnotationsThatElectMustGoTogether(t *testing.T) {
	d := Decoder{HolderKeys: []string{"/service/"}, Patroni: "/service/"}
	const primary = `"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"`
	for _, c := range []struct {
		d           Decoder
		annotations string
		ports       string
		err         string
	}{
		{d, primary, "", ""},
		{d, primary + `,"kube-proxy/patroni-stale":"ask","kube-proxy/patroni-unpromoted":"ask","kube-proxy/wait":"5s"`, "", ""},
		{d, `"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica","kube-proxy/patroni-lag":"1MB","kube-proxy/patroni-fallback":"none"`, "", ""},
		{d, `"kube-proxy/patroni":"pg"`, "", "needs kube-proxy/patroni-role"},
		{d, `"kube-proxy/patroni-role":"primary"`, "", "mean nothing without kube-proxy/patroni"},
		{d, `"kube-proxy/patroni-stale":"ask"`, "", "mean nothing without kube-proxy/patroni"},
		{d, `"kube-proxy/patroni-unpromoted":"ask"`, "", "mean nothing without kube-proxy/patroni"},
		{d, primary + `,"kube-proxy/patroni-lag":"1MB"`, "", "are for replicas"},
		{d, primary + `,"kube-proxy/patroni-fallback":"none"`, "", "are for replicas"},
		{d, primary + `,"kube-proxy/holder-key":"/service/pg/leader"`, "", "one of them elects the endpoints"},
		{d, primary, `"ports":[{"name":"a","port":1},{"name":"b","port":2}]`, "more than one port"},
		{d, primary, `"ports":[{"port":1,"protocol":"UDP"}]`, "one that is not of TCP"},
		{Decoder{}, primary, "", "-patroni says where clusters have their keys"},
		{Decoder{}, `"kube-proxy/holder-key":"/service/pg/leader"`, "", "-holder_keys"},
		{d, `"kube-proxy/holder-key":"/elsewhere"`, "", "-holder_keys"},
	} {
		ports := c.ports
		if ports == "" {
			ports = `"ports":[{"port":5432}]`
		}
		value := fmt.Sprintf(`{"apiVersion":"v1","metadata":{"annotations":{%s}},"spec":{%s}}`, c.annotations, ports)
		if _, _, err := c.d.Decode("/registry/services/specs/shop/pg", []byte(value)); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %s: error %v; want %q", c.annotations, c.ports, err, c.err)
		}
	}
}
