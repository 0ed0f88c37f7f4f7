package connlog

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// timeFormat is RFC 3339 with milliseconds, and always as long.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// An entry is what one line tells of.
type entry struct {
	traffic.Ending
	revision int64 // of the last change that was in force
	start    bool  // the client was given an endpoint, and goes on
}

// appendLine adds the line that tells of the entry, on a node of this name. Its time is that of the end, or of the choice of the endpoint; duration and dial
// are in seconds. Every field is always there: what there was none of is "" or 0.
func (e *entry) appendLine(b []byte, node string) []byte {
	b = append(b, `{"time":"`...)
	b = e.Began.Add(e.Duration).UTC().AppendFormat(b, timeFormat)
	event := "end"
	if e.start {
		event = "start"
	}
	b = append(b, `","event":"`...)
	b = append(b, event...)
	b = append(b, `","node":`...)
	b = appendText(b, node)
	b = append(b, `,"revision":`...)
	b = strconv.AppendInt(b, e.revision, 10)
	b = append(b, `,"service":`...)
	b = appendText(b, e.Service.Namespace, "/", e.Service.Name.Name)
	b = append(b, `,"port_name":`...)
	b = appendText(b, e.Service.Port)
	b = append(b, `,"port":`...)
	b = strconv.AppendUint(b, uint64(e.Listener.Number), 10)
	b = append(b, `,"address":"`...) // of its own
	if e.Listener.Addr.IsValid() {
		b = e.Listener.Addr.AppendTo(b)
	}
	b = append(b, `","protocol":"`...)
	b = append(b, e.Listener.Protocol.String()...)
	b = append(b, `","client":`...)
	b = appendAddr(b, e.Client)
	b = append(b, `,"via":`...)
	b = appendAddr(b, e.Via)
	b = append(b, `,"tlvs":`...)
	b = appendText(b, e.TLVs)
	b = append(b, `,"endpoint":`...)
	b = appendEndpoint(b, e.Endpoint)
	b = append(b, `,"local":`...)
	b = appendAddr(b, e.Local)
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(e.Attempts), 10)
	b = append(b, `,"tried":`...)
	b = appendText(b, e.Tried)
	b = append(b, `,"sent":`...)
	b = strconv.AppendUint(b, e.Sent, 10)
	b = append(b, `,"received":`...)
	b = strconv.AppendUint(b, e.Received, 10)
	b = append(b, `,"duration":`...)
	b = appendSeconds(b, e.Duration)
	b = append(b, `,"dial":`...)
	b = appendSeconds(b, e.Dialled)
	b = append(b, `,"reason":"`...)
	if !e.start {
		b = append(b, e.Reason.String()...)
	}
	return append(b, "\"}\n"...)
}

// appendSeconds adds a duration in seconds, to the microsecond.
func appendSeconds(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, max(d, 0).Seconds(), 'f', 6, 64)
}

// appendAddr adds a client's address. An IPv4 client of a socket that serves both families is shown
// as the IPv4 client it is.
func appendAddr(b []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return append(b, `""`...)
	}
	if a.Addr().Zone() != "" {
		return appendText(b, a.String())
	}
	b = append(b, '"')
	b = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(b)
	return append(b, '"')
}

func appendEndpoint(b []byte, a registry.Addr) []byte {
	if a.Host != "" {
		return appendText(b, a.String())
	}
	return appendAddr(b, a.IP)
}

// appendText adds some text as one JSON string. Names come from etcd keys, and keys may hold anything:
// what cannot be printed and what is markup is escaped, bytes that are no UTF-8 are replaced, so that a
// line stays one harmless line in any terminal or viewer.
func appendText(b []byte, parts ...string) []byte {
	b = append(b, '"')
	for _, s := range parts {
		for _, r := range s {
			switch {
			case r == '"', r == '\\', r == '<', r == '>', r == '&', r == utf8.RuneError, !strconv.IsPrint(r):
				b = appendEscape(b, r)
			default:
				b = utf8.AppendRune(b, r)
			}
		}
	}
	return append(b, '"')
}

// appendEscape adds a character as JSON escapes it: by its number, four hexadecimal digits after \u, or by two such numbers where four
// digits are too few (RFC 8259, section 7).
func appendEscape(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(b, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}
