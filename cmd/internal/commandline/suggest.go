package commandline

import "slices"

// closest returns the word that is most similar to what was typed, or "" if none is similar: one letter in three may be wrong, and one
// letter in any case. A single letter is similar to nothing.
func closest(typed string, words []string) string {
	const longest = 64 // of a name; comparing takes time with the product of the lengths
	if len(typed) < 2 || len(typed) > longest {
		return ""
	}
	best, least := "", max(1, len(typed)/3)+1
	for _, word := range slices.Sorted(slices.Values(words)) {
		if d := distance(typed, word); d < least && d < len(word) {
			best, least = word, d
		}
	}
	return best
}

// distance counts the letters that must be inserted, deleted, replaced, or exchanged with their neighbour, to make b of a (optimal
// string alignment).
func distance(a, b string) int {
	var before, last, row []int // the rows of the table for the last two letters of a, and for this one
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := range len(a) {
		row = append(make([]int, 0, len(b)+1), i+1)
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			d := min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row = append(row, d)
		}
		before, last = last, row
	}
	return last[len(b)]
}
