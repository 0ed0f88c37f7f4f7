package statuspage

import (
	"html/template"
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
	"listener": format.Listener,
	"name":     func(n registry.Name) string { return n.Label() },
	"service":  serviceHref,
	"text":     registry.Label,
	"duration": format.Duration,
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
