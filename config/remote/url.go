package remote

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"kubeproxy/registry"
)

// ParseURL reads the URL of a server; what says whose URL it is, as in "etcd URL". Without a scheme it has the given one. Anything
// that would only fail later, and for ever, is an error now: see [WrongURL].
func ParseURL(what, text, scheme string) (*url.URL, error) {
	full := strings.TrimSpace(text)
	if full == "" {
		return nil, errors.New("empty " + what)
	}
	if !strings.Contains(full, "://") {
		full = scheme + "://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return nil, WrongURL(what, text, "does not parse") // the parser's own words repeat the URL, secrets and all
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, WrongURL(what, text, "is neither http nor https")
	case u.User != nil:
		return nil, WrongURL(what, text, "holds a user: credentials have settings of their own")
	case u.Hostname() == "":
		return nil, WrongURL(what, text, "has no host")
	case u.RawQuery != "", u.Fragment != "":
		return nil, WrongURL(what, text, "has something after its path")
	}
	return u, nil
}

// WrongURL is an error about a URL, which it quotes without a user and a password.
func WrongURL(what, text, why string) error {
	return fmt.Errorf("%s %s %s", what, registry.Quote(Redact(strings.TrimSpace(text))), why)
}

// Redact hides what a URL, or a list of them, says about a user.
func Redact(s string) string {
	start := 0
	if i := strings.Index(s, "://"); i >= 0 {
		start = i + len("://")
	}
	if at := strings.LastIndexByte(s, '@'); at >= start {
		return s[:start] + "…" + s[at:]
	}
	return s
}

// IsHTTPS reports whether a URL asks for TLS.
func IsHTTPS(url string) bool { return strings.HasPrefix(url, "https://") }
