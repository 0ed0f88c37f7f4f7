package statuspage

import (
	"html/template"
	"net/url"
	"strings"

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
