package registry

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

// sendProxyAnnotation names the version. HAProxy's ingress controller has the same name for it.
const sendProxyAnnotation = "haproxy.org/send-proxy-protocol"
