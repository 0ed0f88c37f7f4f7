package commandline

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestADefaultFileOfKubernetesIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("testdata/kubernetes-defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, notes, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{
		{Flag: "bind_address", Values: []string{"0.0.0.0"}, Where: "line 3: bindAddress: "},
		{Flag: "config_sync_period", Values: []string{"15m0s"}, Where: "line 12: configSyncPeriod: "},
		{Flag: "healthz_bind_address", Values: []string{"0.0.0.0:10256"}, Where: "line 26: healthzBindAddress: "},
		{Flag: "metrics_bind_address", Values: []string{"127.0.0.1:10249"}, Where: "line 53: metricsBindAddress: "},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "conntrack.min") || strings.Contains(notes[0], "bindAddress") {
		t.Errorf("the notes are %q", notes)
	}
}

func TestFieldsThatHaveAFlagSetIt(t *testing.T) {
	got, notes, err := parse([]byte(header + "clientConnection: {kubeconfig: /etc/kubeconfig}\nenableProfiling: true\nlogging: {verbosity: 3}\nclusterCIDR: 10.0.0.0/8\nnodePortAddresses: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	flags := make(map[string]string)
	for _, s := range got {
		flags[s.Flag] = strings.Join(s.Values, ",")
	}
	if diff := cmp.Diff(map[string]string{"kubeconfig": "/etc/kubeconfig", "profiling": "true", "v": "3"}, flags); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if want := []string{"these fields have no effect: clusterCIDR"}; !cmp.Equal(notes, want) {
		t.Errorf("got the notes %q, want %q", notes, want)
	}
}

// What Kubernetes' own kube-proxy would do, and this one does not, is not passed over in silence.
func TestFieldsWithoutACounterpartAreNamedAndRefused(t *testing.T) {
	for text, want := range map[string]string{
		"mode: ipvs\n": `mode: "ipvs"; remove`,
		"nodePortAddresses: [10.0.0.0/8]\nmode: iptables": `mode: "iptables", nodePortAddresses: ["10.0.0.0/8"]; remove`,
		"iptables: {masqueradeAll: true}":                 "iptables.masqueradeAll: true; remove",
		"conntrack: {min: 1}":                             "conntrack.min: 1; remove",
		"featureGates: {Foo: true}":                       "featureGates.Foo: true; remove",
		"udp_timeout: 3s":                                 `udp_timeout: "3s"; remove`,
		"bindAddress: [a, [b]]":                           "bindAddress: wants a list of words or numbers",
	} {
		if _, _, err := parse([]byte(header + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString("f" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + strings.Repeat("y", i/50) + ": 1\n")
	}
	if _, _, err := parse([]byte(header + many.String())); err == nil || len(err.Error()) > 4000 || !strings.Contains(err.Error(), " more; remove") {
		t.Errorf("a thousand unknown fields make an error of %d bytes", len(err.Error()))
	}
}
