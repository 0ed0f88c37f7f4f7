package statuspage

import (
	"fmt"
	"html/template"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"kubeproxy/registry"
)

// functions are what templates call.
var functions = template.FuncMap{
	"whole":    func(n any) string { return whole(n) },
	"rate":     rate,
	"bytes":    byteRate,
	"label":    label,
	"listener": listenerText,
	"name":     func(n registry.Name) string { return n.Label() },
	"service":  serviceHref,
	"text":     registry.Label,
	"duration": duration,
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

// whole writes a number with commas.
func whole(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// unknown stands for a rate that nothing is known of yet.
const unknown = "–"

// rate writes how often something happens in a second.
func rate(perSecond float64, known bool) string {
	switch {
	case !known:
		return unknown
	case perSecond == 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return whole(int64(math.Round(perSecond)))
}

// byteRate writes bytes in a second.
func byteRate(perSecond float64, known bool) string {
	if !known {
		return unknown
	}
	if perSecond < 1 {
		return "0"
	}
	units := [...]string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for ; perSecond >= 999.5 && i < len(units)-1; i++ {
		perSecond /= 1000
	}
	precision := 0
	if i > 0 && perSecond < 10 {
		precision = 1
	}
	return strconv.FormatFloat(perSecond, 'f', precision, 64) + " " + units[i]
}

// duration writes a time in one or two units.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// clock writes a time of the day, with the date if that is not the day of now.
func clock(t, now time.Time) string {
	if t.IsZero() {
		return "the start"
	}
	t = t.Round(time.Second)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
