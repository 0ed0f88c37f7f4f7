// Package format writes numbers, times and listeners as people read them.
package format

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// Whole writes a number with commas.
func Whole(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural writes how many things there are.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Whole(n) + " " + thing + "s"
}

// Unknown stands for a rate that nothing is known of yet.
const Unknown = "–"

// Rate writes how often something happens in a second.
func Rate(perSecond float64, known bool) string {
	switch {
	case !known:
		return Unknown
	case perSecond == 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return Whole(int64(math.Round(perSecond)))
}

// Bytes writes bytes in a second.
func Bytes(perSecond float64, known bool) string {
	if !known {
		return Unknown
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

// Duration writes a time in one or two units.
func Duration(d time.Duration) string {
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

// Clock writes a time of the day, with the date if that is not the day of now.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return "the start"
	}
	t = t.Round(time.Second)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// Listener shows a listener as "80/tcp", or "127.0.0.2:80/tcp".
func Listener(id registry.ListenerID) string {
	if id.Addr.IsValid() {
		return fmt.Sprintf("%s/%s", netip.AddrPortFrom(id.Addr, id.Number), id.Protocol)
	}
	return fmt.Sprintf("%d/%s", id.Number, id.Protocol)
}

// Override says what an operator has done, who it was, and until when.
func Override(o *balance.Override, now time.Time) string {
	done := map[balance.Word]string{balance.Drain: "drained", balance.Disable: "disabled", balance.Weigh: fmt.Sprintf("given weight %d", o.Weight)}[o.Word]
	return fmt.Sprintf("%s by an operator (%s) at %s, until %s", done, balance.Who(o.UID), Clock(o.Began, now), Clock(o.Until, now))
}
