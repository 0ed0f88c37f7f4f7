package decode

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kubeproxy/registry"
)

// decodeTo decodes a record that must be accepted, and gives its warnings joined.
func decodeTo(t *testing.T, key, value string) (Record, string) {
	t.Helper()
	r, warnings, err := Decode(key, []byte(value))
	checkAnswer(t, r, warnings, err)
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	var lines []string
	for _, w := range warnings {
		lines = append(lines, string(w))
	}
	return r, strings.Join(lines, "\n")
}

func TestNodePortsOfAService(t *testing.T) {
	decoder := Decoder{NodePorts: true}
	const spec = `{"apiVersion":"v1","spec":{"type":"NodePort","ports":`
	for _, c := range []struct {
		name, value string
		want        []registry.Port
		without     int
		err         string
	}{
		{"each port has one", spec + `[{"name":"a","port":80,"nodePort":30080},{"name":"b","port":53,"protocol":"UDP","nodePort":30053}]}}`,
			[]registry.Port{{Name: "a", Number: 30080}, {Name: "b", Protocol: registry.UDP, Number: 30053}}, 0, ""},
		{"flat, as in v0.17", `{"ports":[{"port":80,"nodePort":30080}]}`, []registry.Port{{Number: 30080}}, 0, ""},
		{"one port of three has one", spec + `[{"name":"a","port":80},{"name":"b","port":81,"nodePort":0},{"name":"c","port":82,"nodePort":30082}]}}`,
			[]registry.Port{{Name: "c", Number: 30082}}, 2, ""},
		{"none has one", spec + `[{"port":80,"nodePort":null}]}}`, nil, 1, ""},
		{"before v0.15", `{"port":80}`, nil, 1, ""},
		{"one number, two protocols", spec + `[{"port":53,"nodePort":30053},{"port":53,"protocol":"UDP","nodePort":30053}]}}`, []registry.Port{{Number: 30053}, {Protocol: registry.UDP, Number: 30053}}, 0, ""},
		{"ports that differ, node ports that do not", spec + `[{"port":80,"nodePort":30080},{"port":81,"nodePort":30080}]}}`, nil, 0, "tcp port 30080 is listed twice"},
		{"ports that do not, node ports that do", spec + `[{"port":80,"nodePort":30080},{"port":80,"nodePort":30081}]}}`, []registry.Port{{Number: 30080}, {Number: 30081}}, 0, ""},
		{"too large", spec + `[{"port":80,"nodePort":65536}]}}`, nil, 0, "as nodePort: port 65536 is not between 1 and 65535"},
		{"of the wrong type", spec + `[{"port":80,"nodePort":"30080"}]}}`, nil, 0, "nodePort holds a string where a whole number is wanted"},
		{"SCTP", spec + `[{"port":80,"protocol":"SCTP","nodePort":30080}]}}`, nil, 0, ""},
		{"a port that is wrong itself", spec + `[{"port":0,"nodePort":30080}]}}`, nil, 0, "port 0 is not between 1 and 65535"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := decoder.Decode(specKey, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			switch {
			case err != nil || c.err != "":
				if err == nil || err.Error() != c.err {
					t.Errorf("error %v; want %q", err, c.err)
				}
			case !slices.Equal(r.Service.Ports, c.want) || r.NoNodePort != c.without:
				t.Errorf("%v, %d without; want %v, %d", r.Service.Ports, r.NoNodePort, c.want, c.without)
			}
		})
	}
}

func TestPortsOfAService(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        []registry.Port
	}{
		{"one, before v0.15", `{"port":80,"portName":"web","protocol":"Udp"}`, []registry.Port{{Name: "web", Protocol: registry.UDP, Number: 80}}},
		{"the list wins over the one", `{"port":80,"protocol":"SCTP","ports":[{"name":"web","port":81}]}`, []registry.Port{{Name: "web", Number: 81}}},
		{"an empty list does not", `{"port":80,"ports":[]}`, []registry.Port{{Number: 80}}},
		{"nor a null", `{"port":80,"ports":null}`, []registry.Port{{Number: 80}}},
		{"in the order of the record", `{"ports":[{"port":9},{"port":1},{"port":5}]}`, []registry.Port{{Number: 9}, {Number: 1}, {Number: 5}}},
		{"one number, two protocols, no names", `{"ports":[{"port":53},{"port":53,"protocol":"UDP"}]}`, []registry.Port{{Number: 53}, {Protocol: registry.UDP, Number: 53}}},
		{"one name, two numbers", `{"ports":[{"name":"w","port":80},{"name":"w","port":8080}]}`, []registry.Port{{Name: "w", Number: 80}, {Name: "w", Number: 8080}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for version, value := range map[string]string{
				"flat":   c.value,
				"nested": `{"apiVersion":"v1","spec":` + c.value + `}`,
			} {
				r, warnings := decodeTo(t, specKey, value)
				if warnings != "" {
					t.Errorf("%s: warnings %q", version, warnings)
				}
				if !slices.Equal(r.Service.Ports, c.want) {
					t.Errorf("%s: ports %v, want %v", version, r.Service.Ports, c.want)
				}
			}
		})
	}
}

// Other protocols of Kubernetes hurt only their own ports.
func TestAnSCTPPortIsLeftOutAndTheOthersAreServed(t *testing.T) {
	for _, c := range []struct {
		name, ports string
		want        []registry.Port
		left        string
	}{
		{"one of three", `[{"name":"a","port":80},{"name":"b","port":81,"protocol":"SCTP"},{"name":"c","port":53,"protocol":"UDP"}]`,
			[]registry.Port{{Name: "a", Number: 80}, {Name: "c", Protocol: registry.UDP, Number: 53}}, "81"},
		{"beside TCP on one number", `[{"port":80},{"port":80,"protocol":"sctp"}]`, []registry.Port{{Number: 80}}, "80"},
		{"all of them", `[{"port":1,"protocol":"SCTP"},{"port":2,"protocol":"SCTP"},{"port":3,"protocol":"SCTP"},{"port":4,"protocol":"SCTP"}]`,
			nil, "1, 2, 3 and 1 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, specKey, `{"apiVersion":"v1","spec":{"ports":`+c.ports+`}}`)
			if !slices.Equal(r.Service.Ports, c.want) {
				t.Errorf("ports %v, want %v", r.Service.Ports, c.want)
			}
			if want := "SCTP is not supported, and these ports are left out: " + c.left; warnings != want {
				t.Errorf("warnings %q, want %q", warnings, want)
			}
		})
	}
	r, warnings := decodeTo(t, specKey, `{"port":80,"protocol":"SCTP"}`)
	if len(r.Service.Ports) > 0 || warnings == "" {
		t.Errorf("the only port: %s, warnings %q; want a service without ports, and a warning", summary(r), warnings)
	}
}

func TestAServiceMayListAThousandPorts(t *testing.T) {
	var ports []string
	for i := range MaxServicePorts {
		ports = append(ports, `{"port":`+strconv.Itoa(i+1)+`}`)
	}
	r, warnings := decodeTo(t, specKey, `{"ports":[`+strings.Join(ports, ",")+`]}`)
	if len(r.Service.Ports) != MaxServicePorts || warnings != "" {
		t.Errorf("%d ports, warnings %q", len(r.Service.Ports), warnings)
	}
}

func TestServicesWithNothingToServeAreValid(t *testing.T) {
	for _, value := range []string{
		`{"port":80,"portalIP":"None"}`,
		`{"apiVersion":"v1beta3","spec":{"ports":[{"port":80}],"portalIP":"None"}}`,
		`{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"None","sessionAffinity":"ClientIP"}}`,
		`{"apiVersion":"v1","spec":{"clusterIP":"None"}}`,
		`{"apiVersion":"v1","spec":{"type":"ExternalName","ports":[{"port":80}]}}`,
	} {
		r, warnings := decodeTo(t, specKey, value)
		if len(r.Service.Ports) > 0 || warnings != "" {
			t.Errorf("%s: %s, warnings %q", value, summary(r), warnings)
		}
	}
}

// A field that a version does not have may hold anything, and in the version that has it the value is judged.
func TestFieldsOfTheNestedFormMayHoldAnythingInTheFlatOne(t *testing.T) {
	for field, err := range map[string]string{
		"externalTrafficPolicy": "spec.externalTrafficPolicy holds an array where a string is wanted",
		"internalTrafficPolicy": "spec.internalTrafficPolicy holds an array where a string is wanted",
		"trafficDistribution":   "spec.trafficDistribution holds an array where a string is wanted",
		"healthCheckNodePort":   "spec.healthCheckNodePort holds an array where a whole number is wanted",
	} {
		for _, value := range []string{`{"zone":1}`, `[]`, `"Local"`, `1.5`, `null`} {
			r, warnings := decodeTo(t, specKey, `{"port":80,"`+field+`":`+value+`}`)
			if len(r.Service.Ports) != 1 || r.Service.Asked != nil || warnings != "" {
				t.Errorf("%s %s: %s, warnings %q", field, value, summary(r), warnings)
			}
		}
		if _, _, is := Decode(specKey, []byte(`{"apiVersion":"v1","spec":{"ports":[{"port":80}],"`+field+`":[]}}`)); is == nil || is.Error() != err {
			t.Errorf("%s in the nested form: error %v; want %q", field, is, err)
		}
	}
	for _, field := range []string{"clusterIPs", "externalIPs", "deprecatedPublicIPs"} {
		for _, value := range []string{`{"zone":1}`, `"10.0.0.8"`, `["10.0.0.8"]`} {
			r, _, err := Decoder{Addresses: AtCluster}.Decode(specKey, []byte(`{"port":80,"portalIP":"10.0.0.7","`+field+`":`+value+`}`))
			if err != nil || len(r.Service.Ports) != 1 {
				t.Errorf("%s %s: error %v, %+v; want one port, at 10.0.0.7", field, value, err, r.Service)
			}
		}
	}
}

func TestAffinityOfAService(t *testing.T) {
	config := func(seconds string) string {
		return `"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":` + seconds + `}}`
	}
	for _, c := range []struct {
		name, stored string
		want         registry.Affinity
		timeout      time.Duration
		warning      string
	}{
		{"null", `null`, registry.AffinityNone, 0, ""},
		{"empty", `""`, registry.AffinityNone, 0, ""},
		{"none", `"None"`, registry.AffinityNone, 0, ""},
		{"none, with a timeout", `"None","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}`, registry.AffinityNone, 0, ""},
		{"unknown", `"Cookie"`, registry.AffinityNone, 0, `unknown session affinity "Cookie" is taken for None`},
		{"client", `"ClientIP"`, registry.AffinityClientIP, 3 * time.Hour, ""},
		{"empty config", `"ClientIP","sessionAffinityConfig":{}`, registry.AffinityClientIP, 3 * time.Hour, ""},
		{"null config", `"ClientIP","sessionAffinityConfig":null`, registry.AffinityClientIP, 3 * time.Hour, ""},
		{"null timeout", config(`null`), registry.AffinityClientIP, 3 * time.Hour, ""},
		{"shortest", config(`1`), registry.AffinityClientIP, time.Second, ""},
		{"longest", config(`86400`), registry.AffinityClientIP, 24 * time.Hour, ""},
		{"zero", config(`0`), registry.AffinityClientIP, 3 * time.Hour, "session affinity timeout of 0 seconds is not between 1 and 86400; it is taken for 10800"},
		{"negative", config(`-1`), registry.AffinityClientIP, 3 * time.Hour, "session affinity timeout of -1 seconds is not between 1 and 86400; it is taken for 10800"},
		{"too long", config(`9223372036854775807`), registry.AffinityClientIP, 3 * time.Hour,
			"session affinity timeout of 9223372036854775807 seconds is not between 1 and 86400; it is taken for 10800"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, specKey, `{"apiVersion":"v1","spec":{"port":80,"sessionAffinity":`+c.stored+`}}`)
			if s := r.Service; s.Terms().Affinity != c.want || s.Terms().AffinityTimeout != c.timeout || warnings != c.warning {
				t.Errorf("affinity %v for %v, warnings %q; want %v for %v, %q", s.Terms().Affinity, s.Terms().AffinityTimeout, warnings, c.want, c.timeout, c.warning)
			}
		})
	}
	r, warnings := decodeTo(t, specKey, `{"port":80,"sessionAffinity":`+config(`60`)+`}`)
	if r.Service.Terms().AffinityTimeout != 3*time.Hour || warnings != "" {
		t.Errorf("the flat form never had the timeout, and here it counts: %v, warnings %q", r.Service.Terms().AffinityTimeout, warnings)
	}
}

func TestTheAlgorithmOfAService(t *testing.T) {
	unknown := func(name string) string {
		_, err := registry.ParseBalance(name)
		return "annotation haproxy.org/load-balance: " + err.Error()
	}
	for _, c := range []struct {
		name, annotations string
		want              registry.Balance
		err               string
	}{
		{"none", `{}`, registry.BalanceUnsaid, ""},
		{"round robin", `{"haproxy.org/load-balance":"roundrobin"}`, registry.RoundRobin, ""},
		{"least connections", `{"haproxy.org/load-balance":"leastconn"}`, registry.LeastConnections, ""},
		{"by address", `{"haproxy.org/load-balance":"source"}`, registry.SourceAddress, ""},
		{"unknown", `{"haproxy.org/load-balance":"static-rr"}`, 0, unknown("static-rr")},
		{"empty", `{"haproxy.org/load-balance":""}`, 0, unknown("")},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, value := range []string{`{"port":80,"annotations":` + c.annotations + `}`, `{"apiVersion":"v1","metadata":{"annotations":` + c.annotations + `},"spec":{"ports":[{"port":80}]}}`} {
				r, _, err := Decode(specKey, []byte(value))
				switch {
				case err != nil || c.err != "":
					if err == nil || err.Error() != c.err {
						t.Errorf("error %v; want %q", err, c.err)
					}
				case r.Service.Terms().Balance != c.want:
					t.Errorf("algorithm %v; want %v", r.Service.Terms().Balance, c.want)
				}
			}
		})
	}
}

func TestTheChecksOfAService(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		want              registry.Check
		err               string
	}{
		{"unsaid", `{}`, registry.Check{}, ""},
		{"on", `{"haproxy.org/check":"true","haproxy.org/check-interval":"10s","haproxy.org/timeout-check":"500ms"}`, registry.Check{Wanted: registry.CheckOn, Interval: 10 * time.Second, Timeout: 500 * time.Millisecond}, ""},
		{"off", `{"haproxy.org/check":"false","haproxy.org/check-http":"/"}`, registry.Check{Wanted: registry.CheckOff, Path: "/"}, ""},
		{"an interval alone", `{"haproxy.org/check-interval":"10s"}`, registry.Check{Interval: 10 * time.Second}, ""},
		{"by HTTP", `{"haproxy.org/check-http":"GET /healthz?full=1"}`, registry.Check{Wanted: registry.CheckOn, Path: "/healthz?full=1"}, ""},
		{"by a datagram", `{"kube-proxy/check-udp":"a%00b=%ff"}`, registry.Check{Wanted: registry.CheckOn, Send: "a\x00b", Expect: "\xff"}, ""},
		{"by any answer", `{"kube-proxy/check-udp":"ping"}`, registry.Check{Wanted: registry.CheckOn, Send: "ping"}, ""},
		{"neither on nor off", `{"haproxy.org/check":"yes"}`, registry.Check{}, `annotation haproxy.org/check: "yes" is neither true nor false`},
		{"another method", `{"haproxy.org/check-http":"HEAD /"}`, registry.Check{}, `annotation haproxy.org/check-http: "HEAD /" is no path such as /healthz, of at most 255 bytes`},
		{"two requests", `{"haproxy.org/check-http":"/ HTTP/1.1\\r\\nX: y"}`, registry.Check{}, `annotation haproxy.org/check-http: "/ HTTP/1.1\\r\\nX: y" is no path such as /healthz, of at most 255 bytes`},
		{"a number", `{"haproxy.org/check-interval":"10"}`, registry.Check{}, `annotation haproxy.org/check-interval: "10" is no time from 100ms to 1h0m0s, such as 5s`},
		{"too often", `{"haproxy.org/check-interval":"1ms"}`, registry.Check{}, `annotation haproxy.org/check-interval: "1ms" is no time from 100ms to 1h0m0s, such as 5s`},
		{"too long", `{"haproxy.org/timeout-check":"2h"}`, registry.Check{}, `annotation haproxy.org/timeout-check: "2h" is no time from 10ms to 1h0m0s, such as 5s`},
		{"no datagram", `{"kube-proxy/check-udp":"=pong"}`, registry.Check{}, `annotation kube-proxy/check-udp: "=pong" is no datagram such as ping or ping=pong, of at most 255 bytes each, with %XX for any byte`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _, err := Decode(specKey, []byte(`{"port":80,"annotations":`+c.annotations+`}`))
			switch {
			case err != nil || c.err != "":
				if err == nil || err.Error() != c.err {
					t.Errorf("error %v; want %q", err, c.err)
				}
			case r.Service.Terms().Checks != c.want:
				t.Errorf("%+v; want %+v", r.Service.Terms().Checks, c.want)
			case r.Service.Terms().Check() != nil:
				t.Error(r.Service.Terms().Check())
			}
		})
	}
}
