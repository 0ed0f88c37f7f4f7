package statuspage

import (
	"fmt"
	"html/template"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/registry"
)

// functions are what templates call.
var functions = template.FuncMap{
	"whole":    func(n any) string { return format.Whole(n) },
	"rate":     format.Rate,
	"bytes":    format.Bytes,
	"label":    label,
	"listener": listenerText,
	"name":     func(n registry.Name) string { return n.Label() },
	"service":  serviceHref,
	"text":     registry.Label,
	"duration": format.Duration,
}

// listenerText shows a listener as "80/tcp", or "127.0.0.2:80/tcp".
func listenerText(id registry.ListenerID) string {
	if id.Addr.IsValid() {
		return fmt.Sprintf("%s/%s", netip.AddrPortFrom(id.Addr, id.Number), id.Protocol)
	}
	return fmt.Sprintf("%d/%s", id.Number, id.Protocol)
}

// serviceHref is where the page of a service is.
func serviceHref(name registry.Name) string {
	return "/status/service?name=" + url.QueryEscape(name.Namespace+"/"+name.Name)
}

// maxShown is how many bytes of an error are shown.
const maxShown = 400

func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// How old a snapshot, or a list, may be that is shown again: shownFor at least, and so much that to take them costs at most 1/maxCost of the
// time of one processor.
const (
	shownFor = 900 * time.Millisecond
	maxCost  = 50
)
