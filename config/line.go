package config

import (
	"strconv"
	"strings"
)

// maxLine bounds an error from outside in a log line.
const maxLine = 400

// OneLine makes an error that repeats words from outside fit for a log line and for a [Status] (D47).
func OneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
	if len(s) <= maxLine {
		return s
	}
	return strings.ToValidUTF8(s[:maxLine], "") + "…"
}
