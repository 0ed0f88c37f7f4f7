package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// headerWith is a header of version 2 with TLVs.
func headerWith(tlvs ...string) []byte {
	b := Append(nil, registry.ProxyV2, netip.MustParseAddrPort("192.0.2.1:5000"), netip.MustParseAddrPort("192.0.2.2:80"))
	b = append(b, strings.Join(tlvs, "")...)
	binary.BigEndian.PutUint16(b[len(signature)+2:], uint16(len(b)-len(signature)-4))
	return b
}

func tlv(kind byte, value string) string {
	return string(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))) + value
}

// TestExtensionsAreToldInOneHarmlessLine, whoever wrote them: it goes into a log.
func TestExtensionsAreToldInOneHarmlessLine(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []byte
		want   string
	}{
		{"none", headerWith(), ""},
		{"version 1", []byte("PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r\n"), ""},
		{"a connection of the proxy's own", AppendLocal(nil, registry.ProxyV2, registry.TCP), ""},
		{"names", headerWith(tlv(0x01, "h2"), tlv(0x02, "db.example"), tlv(0x05, "\x00\x01"), tlv(0x30, "blue")), "alpn=h2 authority=db.example unique_id=0x0001 netns=blue"},
		{"checksum and padding", headerWith(tlv(0x03, "abcd"), tlv(0x04, "pad"), tlv(0x01, "h2")), "alpn=h2"},
		{"a type without a name", headerWith(tlv(0xea, "\x01vpce-08d2bf15fac5001c9")), "0xea=0x01767063652d3038643262663135666163353030316339"},
		{"TLS with a certificate", headerWith(tlv(0x20, "\x07\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3")+tlv(0x22, "client-7")+tlv(0x23, "TLS_AES_128_GCM_SHA256"))),
			"ssl_client_cert=verified ssl_version=TLSv1.3 ssl_cn=client-7 ssl_cipher=TLS_AES_128_GCM_SHA256"},
		{"TLS with one that is not good", headerWith(tlv(0x20, "\x03\x00\x00\x00\x13")), "ssl_client_cert=unverified"},
		{"TLS without one", headerWith(tlv(0x20, "\x01\x00\x00\x00\x01"+tlv(0x21, "TLSv1.2"))), "ssl_client_cert=none ssl_version=TLSv1.2"},
		{"no TLS", headerWith(tlv(0x20, "\x00\x00\x00\x00\x00")), ""},
		{"TLS that is cut off", headerWith(tlv(0x20, "\x01\x00")), "0x20=0x0100"},
		{"a value is cut off within", headerWith(tlv(0x20, "\x01\x00\x00\x00\x01\x21\x00\x09TLS")), "ssl_client_cert=none"},
		{"what a terminal or a reader of the line takes for something else", headerWith(tlv(0x02, "a b"), tlv(0x02, "a\x1b[2J"), tlv(0x02, `a"`), tlv(0x02, "a=b"), tlv(0x02, "é"), tlv(0x02, "")),
			"authority=0x612062 authority=0x611b5b324a authority=0x6122 authority=0x613d62 authority=0xc3a9 authority=0x"},
		{"a long value", headerWith(tlv(0x02, strings.Repeat("a", 200))), "authority=" + strings.Repeat("a", 128) + "…"},
		{"a long value that is no text", headerWith(tlv(0x05, strings.Repeat("\x00", 65))), "unique_id=0x" + strings.Repeat("00", 64) + "…"},
		{"many", headerWith(strings.Repeat(tlv(0x02, strings.Repeat("a", 100)), 9)), strings.TrimSpace(strings.Repeat("authority="+strings.Repeat("a", 100)+" ", 4)) + " …"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Extensions(c.header); got != c.want {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// FuzzExtensions: whatever a header holds, what is said of it is bounded, and one line of words.
func FuzzExtensions(f *testing.F) {
	f.Add(headerWith(tlv(0x20, "\x07\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3")), tlv(0x02, "a b"), tlv(0xea, "\x01x")))
	f.Add([]byte(signature + "\x21\x31\x00\x00"))
	f.Fuzz(func(t *testing.T, header []byte) {
		said := Extensions(header)
		if len(said) > maxExtensions+len(" …") || strings.ContainsFunc(strings.ReplaceAll(said, "…", ""), func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			t.Errorf("%q says %q", header, said)
		}
	})
}
