package commandline

import (
	"slices"

	"kubeproxy/registry/spelling"
)

// closest returns the word that is most similar to what was typed, or "" if none is similar: one letter in three may be wrong, and one
// letter in any case. A single letter is similar to nothing.
func closest(typed string, words []string) string {
	const longest = 64 // of a name; comparing takes time with the product of the lengths
	if len(typed) < 2 || len(typed) > longest {
		return ""
	}
	best, least := "", max(1, len(typed)/3)+1
	for _, word := range slices.Sorted(slices.Values(words)) {
		if d := spelling.Distance(typed, word, least); d < least && d < len(word) {
			best, least = word, d
		}
	}
	return best
}
