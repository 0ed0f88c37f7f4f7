package control

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/cmd/internal/statuspage/files"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
)

// TestOnlyAFormOfThePageWithTheTokenActs: neither a page of another site nor a user who does not have the token can.
func TestOnlyAFormOfThePageWithTheTokenActs(t *testing.T) {
	const token = "0123456789abcdef"
	good := url.Values{"service": {"default/web"}, "endpoint": {"10.0.0.1:80"}, "word": {"drain"}, "for": {"1h"}, "force": {"true"}, "token": {token}}
	with := func(name, value string) url.Values {
		form := make(url.Values)
		for k, v := range good {
			form[k] = v
		}
		form.Set(name, value)
		return form
	}
	headers := func(more ...string) []string {
		return append([]string{"Origin", "http://127.0.0.1:10249", "Content-Type", "application/x-www-form-urlencoded"}, more...)
	}
	for _, c := range []struct {
		name    string
		form    url.Values
		headers []string
		want    int
		change  string
	}{
		{"drain", good, headers(), http.StatusSeeOther, "none → 10.0.0.1:80 is drained for 1h0m0s"},
		{"drain by a browser of today", good, headers("Sec-Fetch-Site", "same-origin"), http.StatusSeeOther, "none → 10.0.0.1:80 is drained for 1h0m0s"},
		{"end clients", with("word", "kill"), headers(), http.StatusSeeOther, "1 of service default/web, endpoint 10.0.0.1:80 → ended"},
		{"the last one", with("force", ""), headers(), http.StatusConflict, ""},
		{"no such word", with("word", "drink"), headers(), http.StatusBadRequest, ""},
		{"no endpoint", with("endpoint", ""), headers(), http.StatusBadRequest, ""},
		{"all of a node", with("service", ""), headers(), http.StatusBadRequest, ""},
		{"a wrong token", with("token", token+"0"), headers(), http.StatusForbidden, ""},
		{"no token", with("token", ""), headers(), http.StatusForbidden, ""},
		{"another site", good, append(headers()[2:], "Origin", "http://evil.example"), http.StatusForbidden, ""},
		{"another port", good, append(headers()[2:], "Origin", "http://127.0.0.1:8080"), http.StatusForbidden, ""},
		{"a file, or a sandbox", good, append(headers()[2:], "Origin", "null"), http.StatusForbidden, ""},
		{"no origin", good, headers()[2:], http.StatusForbidden, ""},
		{"another site, as the browser says", good, headers("Sec-Fetch-Site", "cross-site"), http.StatusForbidden, ""},
		{"another page of the machine", good, headers("Sec-Fetch-Site", "same-site"), http.StatusForbidden, ""},
		{"a text", good, append(headers()[:2], "Content-Type", "text/plain"), http.StatusForbidden, ""},
		{"a long form", with("for", strings.Repeat("x", 2*maxForm)), headers(), http.StatusBadRequest, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes := new(history.History)
			on := traffic.Client{Client: netip.MustParseAddrPort("10.0.0.7:5000")}
			on.Service.Name.Namespace, on.Service.Name.Name = "default", "web"
			on.Endpoint.IP = netip.MustParseAddrPort("10.0.0.1:80")
			b := Browser{Node: Node{Report: func() (r statuspage.Report) { return r }, History: changes, Proxier: &carried{clients: []traffic.Client{on}}, Save: func() error { return nil }},
				Token: func() (string, error) { return token, nil }}
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:10249"+ActionPath, strings.NewReader(c.form.Encode()))
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			answer := httptest.NewRecorder()
			b.ServeHTTP(answer, r)
			if answer.Code != c.want {
				t.Errorf("status %d, want %d: %s", answer.Code, c.want, answer.Body)
			}
			if c.want == http.StatusSeeOther && answer.Header().Get("Location") != "/status/service?name=default%2Fweb" {
				t.Errorf("it leads to %q", answer.Header().Get("Location"))
			}
			if strings.Contains(answer.Body.String(), token) {
				t.Errorf("the answer has the token: %s", answer.Body)
			}
			last, ever := changes.Last(1, nil)
			if c.change == "" && ever > 0 || c.change != "" && (ever != 1 || last[0].Change != c.change || last[0].String() != "operator (at the status page): "+last[0].Of+" default/web: "+c.change) {
				t.Errorf("remembered: %d: %v", ever, last)
			}
		})
	}
	b := Browser{Token: func() (string, error) { return "", errors.New("/etc/token has mode 0644") }}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:10249"+ActionPath, strings.NewReader(with("token", "").Encode()))
	r.Header.Set("Origin", "http://127.0.0.1:10249")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	if b.ServeHTTP(answer, r); answer.Code != http.StatusServiceUnavailable || strings.Contains(answer.Body.String(), "/etc/token") {
		t.Errorf("without a token: %d %s", answer.Code, answer.Body)
	}
}

// TestThePageSaysWhatTheCommandWarnsOf: that a restart will forget what was done, or put back in force, and that clients are left.
func TestThePageSaysWhatTheCommandWarnsOf(t *testing.T) {
	const token, unsaved = "0123456789abcdef", `the disk is full: <script>alert("x")</script>`
	for _, c := range []struct {
		name, word string
		node       Proxier
		save       error
		want       []string // none: it leads back to the page at once
	}{
		{"drain that is kept", "drain", &carried{}, nil, nil},
		{"drain without -state_dir", "drain", &carried{}, ErrNotKept, []string{"a restart will forget this: there is no -state_dir"}},
		{"drain that cannot be saved", "drain", &carried{}, errors.New(unsaved), []string{"a restart will forget this: the disk is full"}},
		{"enable that cannot be saved", "enable", &carried{overrides: make([]balance.Override, 1)}, errors.New(unsaved),
			[]string{"a restart will put it in force again: the disk is full"}},
		{"enable without -state_dir", "enable", &carried{overrides: make([]balance.Override, 1)}, ErrNotKept, nil},
		{"disable where the kernel has clients", "disable", &connecting{left: 3}, nil, []string{"clients may be left: the kernel has them"}},
		{"disable with a client that goes on connecting", "disable", &carried{left: 2}, nil, []string{"2 clients are left: they were still connecting"}},
		{"disable with one client that goes on connecting", "disable", &carried{left: 1}, nil, []string{"1 client is left: it was still connecting"}},
		{"end clients", "kill", &carried{}, errors.New(unsaved), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report := func() statuspage.Report {
					return statuspage.Report{Overrides: []string{"10.0.0.1:80 was drained.", "<script>"}}
				}
				b := Browser{Node: Node{Report: report, History: new(history.History), Proxier: c.node, Save: func() error { return c.save }},
					Token: func() (string, error) { return token, nil }}
				form := url.Values{"service": {"default/web"}, "endpoint": {"10.0.0.1:80"}, "word": {c.word}, "force": {"true"}, "token": {token}}
				r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:10249"+ActionPath, strings.NewReader(form.Encode()))
				r.Header.Set("Origin", "http://127.0.0.1:10249")
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				answer := httptest.NewRecorder()
				b.ServeHTTP(answer, r)
				if c.want == nil {
					if answer.Code != http.StatusSeeOther {
						t.Errorf("answered with %d: %s", answer.Code, answer.Body)
					}
					return
				}
				body := answer.Body.String()
				for _, want := range append(c.want, "Do not reload this page", "<li>10.0.0.1:80 was drained.</li>", `<a href="/status/service?name=default%2Fweb">`) {
					if answer.Code != http.StatusOK || !strings.Contains(body, want) {
						t.Errorf("answered with %d: %s; want %q in it", answer.Code, body, want)
					}
				}
				if strings.Contains(body, "<script") || strings.Contains(body, token) || answer.Header().Get("Content-Security-Policy") != files.Policy {
					t.Errorf("the answer lets a text from outside act: %v %s", answer.Header(), body)
				}
			})
		})
	}
}
