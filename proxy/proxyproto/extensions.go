package proxyproto

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// The extensions (TLVs) of a header of version 2 that have a name in the protocol's section 2.2, and those within the one about TLS.
var (
	extensions    = map[byte]string{0x01: "alpn", 0x02: "authority", 0x05: "unique_id", 0x30: "netns"}
	tlsExtensions = map[byte]string{0x21: "ssl_version", 0x22: "ssl_cn", 0x23: "ssl_cipher", 0x24: "ssl_sig_alg", 0x25: "ssl_key_alg", 0x26: "ssl_group", 0x27: "ssl_sig_scheme"}
)

const (
	typeCRC32C, typeNoop, typeTLS = 0x03, 0x04, 0x20

	tlsFixed                   = 5 // bytes before those within: what the client did, and 0 if its certificate is good
	usedTLS, showedCertificate = 0x01, 0x06

	maxExtension  = 128 // bytes of one value as text, and
	maxExtensions = 512 // of all, without the mark that says that there are more
)

// Extensions says in one line what a header that Parse has accepted holds beside addresses: NAME=VALUE, with a space between each two, such as
// "alpn=h2 authority=db.example ssl_version=TLSv1.3". One without a name goes by its type, such as 0xea; a value that is no plain text is in
// hexadecimal after 0x. Checksums and padding are left out. Long values, and what is too much, end in "…".
func Extensions(header []byte) string {
	const fixed = len(signature) + 4
	if len(header) < fixed || !hasPrefix(header, signature) || header[len(signature)] != proxied {
		return ""
	}
	kind := header[len(signature)+1]
	addresses, known := addressLength(kind)
	if !known || kind == unspecified || len(header) < fixed+addresses {
		return ""
	}
	var b strings.Builder
	tell := func(names map[byte]string, kind byte, value []byte) (goOn bool) {
		name, ok := names[kind]
		if !ok {
			name = "0x" + hex.EncodeToString([]byte{kind})
		}
		text := name + "=" + shown(value)
		if b.Len()+len(" ")+len(text) > maxExtensions {
			b.WriteString(" …")
			return false
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(text)
		return true
	}
	eachTLV(header[fixed+addresses:], func(kind byte, value []byte) (goOn bool) {
		switch {
		case kind == typeCRC32C, kind == typeNoop:
			return true
		case kind != typeTLS || len(value) < tlsFixed:
			return tell(extensions, kind, value)
		}
		if value[0]&usedTLS == 0 {
			return true
		}
		certificate := "none"
		switch {
		case value[0]&showedCertificate == 0:
		case binary.BigEndian.Uint32(value[1:]) == 0:
			certificate = "verified"
		default:
			certificate = "unverified"
		}
		goOn = tell(map[byte]string{typeTLS: "ssl_client_cert"}, typeTLS, []byte(certificate))
		eachTLV(value[tlsFixed:], func(kind byte, value []byte) bool {
			goOn = goOn && tell(tlsExtensions, kind, value)
			return goOn
		})
		return goOn
	})
	return b.String()
}

// eachTLV calls f with type and value of each TLV, until it returns false or one is cut off.
func eachTLV(b []byte, f func(kind byte, value []byte) (goOn bool)) {
	const fixed = 3
	for len(b) >= fixed {
		end := fixed + int(binary.BigEndian.Uint16(b[1:]))
		if end > len(b) || !f(b[0], b[fixed:end]) {
			return
		}
		b = b[end:]
	}
}

// shown is a value as a word: text without a space, a quotation mark or anything that is not of ASCII is as it is.
func shown(value []byte) string {
	text, long := string(value[:min(len(value), maxExtension)]), len(value) > maxExtension
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '=' }) {
		n := min(len(value), maxExtension/2)
		text, long = "0x"+hex.EncodeToString(value[:n]), n < len(value)
	}
	if long {
		text += "…"
	}
	return text
}
