package registry

import "fmt"

// A ProxyHeader is the version of the PROXY protocol whose header endpoints get before what the client says.
type ProxyHeader uint8

// The versions. Records spell the first one in two ways.
const (
	NoProxyHeader ProxyHeader = iota
	ProxyV1
	ProxyV2
	endOfProxyHeaders // a new version stands before it
)

// String gives the version as records spell it; "" for none.
func (h ProxyHeader) String() string {
	return [endOfProxyHeaders]string{NoProxyHeader: "", ProxyV1: "proxy-v1", ProxyV2: "proxy-v2"}[h]
}

// readProxyHeader reads the version. An unknown one is an error: an endpoint that waits for a header refuses every client without one. Version 1
// has no form for datagrams, so UDP ports send none.
func (t *Terms) readProxyHeader(s string) error {
	switch s {
	case "proxy", "proxy-v1":
		t.ProxyHeader = ProxyV1
	case "proxy-v2":
		t.ProxyHeader = ProxyV2
	default:
		return fmt.Errorf("unknown version %s: want proxy, proxy-v1 or proxy-v2", Quote(s))
	}
	return nil
}
