// Package files has the templates of the status page, what its pages load, and the form of its answers.
package files

import (
	"bytes"
	"embed"
	"encoding/json"
	"net/http"
	"strconv"
)

// Templates has those of the pages.
//
//go:embed *.html
var Templates embed.FS

//go:embed style.css script.js icon.svg
var embedded embed.FS

// Policy lets a page load its own style, script and icon, send its form to itself, and nothing else.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// SetHeaders says what an answer is, and what it may load.
func SetHeaders(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Handler answers with an embedded file.
func Handler(name, contentType string) http.Handler {
	content, err := embedded.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		SetHeaders(w.Header(), contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content) // who does not want it need not take it
	})
}

// Event writes a server-sent event.
func Event(changed map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("data: ")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it is HTML, and no part of a page
	if err := enc.Encode(changed); err != nil {
		return nil, err
	}
	b.WriteString("\n")
	return b.Bytes(), nil
}
