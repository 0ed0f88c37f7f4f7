package checks

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// An authority issues certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate for a name or an address, which is good until a time.
func (a *authority) issue(t *testing.T, host string, until time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// shows is an endpoint that shows a certificate, and answers requests by HTTP with the status 200 if they ask for /healthz.
func shows(cert tls.Certificate) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		secured := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
		r, err := http.ReadRequest(bufio.NewReader(secured))
		if err != nil {
			return
		}
		status := http.StatusOK
		if r.URL.Path != "/healthz" {
			status = http.StatusNotFound
		}
		fmt.Fprintf(secured, "HTTP/1.1 %d .\r\n\r\n", status)
		proxytest.Hold(conn)
	}
}

// TestAQuestionOverTLSIsAnsweredByWhoHasTheCertificate, and the error has no text that the endpoint has made up.
func TestAQuestionOverTLSIsAnsweredByWhoHasTheCertificate(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	trusted, other := newAuthority(t), newAuthority(t)
	later, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	const verify, insecure = registry.CheckVerified, registry.CheckUnverified
	for _, c := range []struct {
		name  string
		serve func(*net.TCPConn)
		asks  Question
		err   string
	}{
		{"by its address", shows(trusted.issue(t, "127.0.0.1", later)), Question{TLS: verify}, ""},
		{"by its address, with a path", shows(trusted.issue(t, "127.0.0.1", later)), Question{TLS: verify, Path: "/healthz"}, ""},
		{"another status", shows(trusted.issue(t, "127.0.0.1", later)), Question{TLS: verify, Path: "/"}, `GET "/": status 404`},
		{"by the host that is asked for", shows(trusted.issue(t, "web.example", later)), Question{TLS: verify, Path: "/healthz", Host: "web.example:443"}, ""},
		{"by a host, without a path", shows(trusted.issue(t, "web.example", later)), Question{TLS: verify, Host: "web.example"}, ""},
		{"another host", shows(trusted.issue(t, "\x1b[31mdb.example", later)), Question{TLS: verify, Host: "web.example"}, errOtherName.Error()},
		{"another authority", shows(other.issue(t, "127.0.0.1", later)), Question{TLS: verify}, errAuthority.Error()},
		{"a certificate that has expired", shows(trusted.issue(t, "127.0.0.1", past)), Question{TLS: verify}, errExpired.Error()},
		{"any certificate", shows(other.issue(t, "db.example", past)), Question{TLS: insecure, Path: "/healthz"}, ""},
		{"any certificate, and another status", shows(other.issue(t, "db.example", past)), Question{TLS: insecure, Path: "/"}, "status 404"},
		{"no TLS", proxytest.Chat("web"), Question{TLS: insecure}, errNotTLS.Error()},
		{"no answer", func(conn *net.TCPConn) { conn.Read(make([]byte, 1)) }, Question{TLS: insecure}, ""},
		{"a hang in the handshake", proxytest.Hold, Question{TLS: insecure}, errSilent.Error()},
		{"after a PROXY header", introduced(shows(trusted.issue(t, "127.0.0.1", later))), Question{TLS: verify, Path: "/healthz", Header: registry.ProxyV2}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := proxytest.ServeTCP(t, "127.0.0.1:0", c.serve).Addr
			descriptors := new(everywhere)
			timeout := proxytest.Patience
			if c.err == errSilent.Error() {
				timeout = 200 * time.Millisecond
			}
			checker := New(Settings{Roots: Trust(func() *x509.CertPool { return trusted.pool })}, descriptors, descriptors)
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan struct{})
			target := checker.Watch(Key{Question: c.asks, Interval: 10 * time.Millisecond, Timeout: timeout, Fall: 1, Rise: 1}.At(at), new(ear))
			go func() { defer close(over); checker.Run(ctx) }()
			proxytest.Eventually(t, func() bool { return target.State().Known }, "the end of the check")
			got := target.State().Err
			stop()
			<-over
			switch {
			case c.name == "no answer": // it depends on who is faster
				if got == "" {
					t.Error("the check has passed")
				}
			case c.err == "" && got != "", !strings.Contains(got, c.err):
				t.Errorf("error %q; want %q", got, c.err)
			}
			if n := descriptors.taken.Load(); n != 0 {
				t.Errorf("the check has %d descriptors still", n)
			}
		})
	}
}

// introduced reads the header that says the question is the proxy's own, and then serves.
func introduced(serve func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		header := make([]byte, len(proxyproto.AppendLocal(nil, registry.ProxyV2, registry.TCP)))
		if _, err := conn.Read(header); err == nil && string(header) == string(proxyproto.AppendLocal(nil, registry.ProxyV2, registry.TCP)) {
			serve(conn)
		}
	}
}

func TestWhoseCertificateAnEndpointShows(t *testing.T) {
	to := netip.MustParseAddrPort("[fe80::1%eth0]:443")
	for _, c := range []struct {
		host, name, want string
	}{
		{"", "", "fe80::1"},
		{"", "db.example", "db.example"},
		{"web.example", "db.example", "web.example"},
		{"web.example:8443", "", "web.example"},
		{"[2001:db8::1]:443", "", "2001:db8::1"},
		{"[2001:db8::1]", "", "2001:db8::1"},
	} {
		k := Key{Addr: registry.Addr{Host: c.name}, Question: Question{Host: c.host}}
		if got := k.serverName(to); got != c.want {
			t.Errorf("%q at %q: %q; want %q", c.host, c.name, got, c.want)
		}
	}
}
