package decode

import (
	"errors"
	"fmt"
	"net/netip"

	"kubeproxy/registry"
)

// parseIPv4 reads an IPv4 address as [netip.ParseAddr] would, without making a string of it; of other text it gives the zero Addr.
func parseIPv4(text []byte) netip.Addr {
	var ip [4]byte
	for i := range ip {
		n, digits := 0, 0
		for digits < len(text) && digits < 3 && '0' <= text[digits] && text[digits] <= '9' {
			n, digits = 10*n+int(text[digits]-'0'), digits+1
		}
		if digits == 0 || digits > 1 && text[0] == '0' || n > 255 {
			return netip.Addr{}
		}
		ip[i], text = byte(n), text[digits:]
		if i == len(ip)-1 {
			break
		}
		if len(text) == 0 || text[0] != '.' {
			return netip.Addr{}
		}
		text = text[1:]
	}
	if len(text) > 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom4(ip)
}

var errNoPortNumber = errors.New("no port number")

// portNumber reads a port that was a JSON number. D12: v0.4 left at zero what it could not read,
// and the kernel takes port zero for "any".
func portNumber(n *int64) (uint16, error) {
	switch {
	case n == nil:
		return 0, errNoPortNumber
	case *n < 1 || *n > 65535:
		return 0, fmt.Errorf("port %d is not between 1 and 65535", *n)
	}
	return uint16(*n), nil
}

// isHeadless tells a service whose clients go by DNS, past any proxy.
func isHeadless(portalIP, clusterIP, serviceType string) bool {
	return portalIP == "None" || clusterIP == "None" || serviceType == "ExternalName"
}

// maxPortName is how long the name of a port may be (RFC 1035, 2.3.4: a label).
const maxPortName = 63

// checkPortName reports why a port cannot have a name, which records of both kinds spell out.
func checkPortName(name string) error {
	if len(name) > maxPortName {
		return fmt.Errorf("port name %s is longer than %d bytes", registry.QuoteShort(name), maxPortName)
	}
	return nil
}
