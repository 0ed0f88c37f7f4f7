package registry

import (
	"strings"
	"testing"
)

// Each term is read, shown as it was written, and part of what makes two services differ. A bad value names the annotation, and is bounded.
func TestEachTermIsReadShownAndCompared(t *testing.T) {
	values := map[string][]string{
		"load-balance":                 {"source"},
		"send-proxy-protocol":          {"proxy-v2"},
		"check":                        {"true", "false"},
		"check-http":                   {"/healthz?full=1"},
		"check-interval":               {"2s", "1h0m0s"},
		"check-timeout":                {"10ms"},
		"check-udp":                    {"ping", "ping=pong", "a%3D%00=b%3D%FF"},
		"check-port":                   {"8081"},
		"check-method":                 {"HEAD"},
		"check-tls":                    {"verify", "insecure"},
		"check-host":                   {"web.example:80"},
		"check-status":                 {"204", "200-299"},
		"check-fall":                   {"1", "100"},
		"check-rise":                   {"3"},
		"on-failed-check":              {"close"},
		"all-failed":                   {"refuse"},
		"max-connections":              {"1", "1000000000"},
		"max-connections-per-client":   {"7", "none"},
		"max-connections-per-endpoint": {"7"},
		"connect-timeout":              {"10ms", "1m0s"},
		"wait":                         {"10ms", "30s"},
		"idle-timeout":                 {"1s", "none"},
		"udp-timeout":                  {"100ms"},
		"udp-requests":                 {"1"},
		"udp-replies":                  {"3"},
		"keep-lapsed":                  {"false"},
		"holder-key":                   {"/service/pg/leader"},
		"patroni":                      {"pg", "0"},
		"patroni-role":                 {"replica"},
		"patroni-lag":                  {"1", "1500kB", "16MB", "2147483647GB"},
		"patroni-fallback":             {"none"},
		"patroni-stale":                {"ask"},
		"patroni-unpromoted":           {"ask"},
		"on-removal":                   {"drain", "close", "close-after=30s"},
	}
	for _, of := range terms {
		if len(values[of.name]) == 0 {
			t.Errorf("no value of %s is tried", of.name)
		}
		for _, value := range values[of.name] {
			for _, name := range []string{AnnotationPrefix + of.name, of.alias} {
				if name == "" {
					continue
				}
				w := Wishes{Annotations: map[string]string{name: value}}
				if strings.HasPrefix(of.name, "check-") && of.alias == "" {
					w.Annotations[AnnotationPrefix+"check-http"] = "/"
				}
				if strings.HasPrefix(of.name, "patroni") {
					for term, value := range map[string]string{"patroni": "pg", "patroni-role": "replica"} {
						if term != of.name {
							w.Annotations[AnnotationPrefix+term] = value
						}
					}
				}
				got, _, err := w.Terms(nil)
				if err != nil || got.Check() != nil {
					t.Errorf("%s=%s: error %v, check %v", name, value, err, got.Check())
					continue
				}
				if said := of.show(&got); said != value || !strings.Contains(got.String(), of.name+"="+value) {
					t.Errorf("%s=%s is shown as %q among %q", name, value, said, &got)
				}
				if got.Equal(NoTerms) {
					t.Errorf("%s=%s makes no difference", name, value)
				}
			}
		}
		for _, bad := range []string{"", "?", "-1", "0", "1e99", strings.Repeat("9", 1<<16)} {
			w := Wishes{Annotations: map[string]string{AnnotationPrefix + of.name: bad}}
			_, _, err := w.Terms(nil)
			if of.name == "check-udp" && bad != "" && len(bad) < 100 {
				continue // any text is a datagram
			}
			if of.name == "patroni" && bad != "" && bad != "?" && len(bad) < 100 {
				continue // many texts are a scope, and it is the role that lacks
			}
			if of.name == "check-host" && bad != "" && consistsOf(bad, "-") && len(bad) < 100 {
				continue // these are hosts
			}
			if err == nil || !strings.HasPrefix(err.Error(), "annotation "+AnnotationPrefix+of.name+": ") || len(err.Error()) > 500 {
				t.Errorf("%s=%.20s: error %v", of.name, bad, err)
			}
		}
	}
}
