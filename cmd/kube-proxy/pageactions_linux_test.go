package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/proxy/proxytest"
)

// TestThePageActsWithATokenAndIsReadOnlyWithoutTheFlag.
func TestThePageActsWithATokenAndIsReadOnlyWithoutTheFlag(t *testing.T) {
	const token = "c2VjcmV0IG9mIHRoZSBwYWdl"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	a, _ := s.twoEndpoints(t)
	metrics, address := operatorsURL(t)
	readOnly := s.serve(t, "-metrics_bind_address="+metrics)
	post := func(token string) (status int, body string) {
		t.Helper()
		form := url.Values{"service": {"default/chat"}, "endpoint": {a.Addr.String()}, "word": {"drain"}, "for": {"1h"}, "token": {token}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/status/act", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", address)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if status, body := post(token); status != http.StatusNotFound {
		t.Errorf("a page that is read-only answers with %d: %s", status, body)
	}
	if _, page := see(t, address+"/status/service?name=default%2Fchat"); strings.Contains(page, "<form class=\"act\"") {
		t.Error("a page that is read-only has a form to act")
	}
	readOnly.Signal(t, syscall.SIGTERM)
	readOnly.Exit(t)

	p := s.serve(t, "-metrics_bind_address="+metrics, "-page_actions="+file)
	proxytest.Eventually(t, func() bool { return len(s.answers(t, 4)) == 2 }, "both endpoints answer")
	if _, page := see(t, address+"/status/service?name=default%2Fchat"); !strings.Contains(page, "<form class=\"act\"") || strings.Contains(page, token) {
		t.Error("the page has no form to act, or holds the token")
	}
	if status, _ := see(t, address+"/status/act"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered with %d", status)
	}
	if status, body := post("wrong"); status != http.StatusForbidden {
		t.Errorf("a wrong token is answered with %d: %s", status, body)
	}
	if status, body := post(token); status != http.StatusOK || !strings.Contains(body, "drained by an operator (at the status page)") {
		t.Errorf("the token is answered with %d: %.2000s", status, body)
	}
	if by := s.answers(t, 6); by["a"] != 0 {
		t.Errorf("the drained endpoint has %d new clients", by["a"])
	}
	p.Signal(t, syscall.SIGTERM)
	p.Exit(t)
	if text := p.Stderr.String(); strings.Contains(text, token) || !strings.Contains(text, "-page_actions: a form from 127.0.0.1:") {
		t.Errorf("the log holds the token, or does not tell of the wrong one:\n%s", text)
	}
}

// TestATokenThatOthersMayReadIsRefused, and so is one that can be guessed.
func TestATokenThatOthersMayReadIsRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"c2VjcmV0IG9mIHRoZSBwYWdl", 0o644, "has mode 0644, so others may know the token: chmod 600"},
		{"short", 0o600, "holds no token of 16 to 200 bytes"},
		{strings.Repeat("x", 300), 0o600, "holds no token of 16 to 200 bytes"},
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := control.TokenFile(file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.10s: %v; want %s", c.text, err, c.want)
		}
	}
	if _, err := control.TokenFile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestACredentialOfSystemdIsAToken, with the mode that it has for a service of another user than root: LoadCredential=.
func TestACredentialOfSystemdIsAToken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	t.Setenv("CREDENTIALS_DIRECTORY", dir+"/")
	for _, c := range []struct {
		mode os.FileMode
		good bool
	}{{0o400, true}, {0o440, true}, {0o460, false}, {0o444, false}} {
		_ = os.Remove(file) // the first time it is not there
		if err := errors.Join(os.WriteFile(file, []byte("c2VjcmV0IG9mIHRoZSBwYWdl"), 0o600), os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := control.TokenFile(file); (err == nil) != c.good {
			t.Errorf("with mode %04o: %v", c.mode, err)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	if err := os.Chmod(file, 0o440); err != nil {
		t.Fatal(err)
	}
	if _, err := control.TokenFile(file); err == nil {
		t.Error("a file elsewhere that its group may read is taken")
	}
}
