package operators

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// checkHost refuses requests that reach a loopback address under a name that is not this machine's. Such a request
// comes from a browser on this machine, on behalf of a page whose name was made to mean 127.0.0.1 (DNS rebinding):
// the page could read what only users of this machine are to see. Requests at other addresses are answered under
// every name, since Prometheus asks under the one that its configuration has.
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isOurName(r.Host) {
			write(w, http.StatusMisdirectedRequest,
				"at a loopback address this page is answered under localhost, an IP address or the machine's host name\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOurName reports whether the Host of a request names this machine in a way that no stranger's DNS server has a
// say in: an IP address, localhost, the host name, or none at all, which no browser sends.
func isOurName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	own, err := os.Hostname()
	return err == nil && strings.EqualFold(host, strings.TrimSuffix(own, "."))
}
