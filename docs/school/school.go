// Package school holds the texts of the school and the programs to begin with, for the program that prints them.
package school

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

//go:embed *.md starters
var files embed.FS

// Stage returns the text of a stage, in Markdown.
func Stage(number int) ([]byte, error) {
	names, err := fs.Glob(files, fmt.Sprintf("%02d-*.md", number))
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("stage %d has %d texts; want one", number, len(names))
	}
	return files.ReadFile(names[0])
}

var (
	folds   = regexp.MustCompile(`(?s)<details>\n<summary>[^<]*</summary>\n.*?\n</details>\n\n`)
	summary = regexp.MustCompile(`<summary>([^<]*)</summary>`)
)

// Folded is [Stage] without what a browser folds, and says what that is.
func Folded(number int) ([]byte, error) {
	text, err := Stage(number)
	if err != nil {
		return nil, err
	}
	var titles []string
	for _, m := range summary.FindAllSubmatch(text, -1) {
		titles = append(titles, string(m[1]))
	}
	first := true
	return folds.ReplaceAllFunc(text, func([]byte) []byte {
		if !first {
			return nil
		}
		first = false
		return fmt.Appendf(nil, "(Folded: %s. school -hint text %d prints the page with them.)\n\n", strings.Join(titles, "; "), number)
	}), nil
}

// starters are the programs to begin with, by language.
var starters = map[string]string{"python": "starter.py", "node": "starter.js", "go": "starter.go", "shell": "starter.sh"}

// Starter returns a program that reads its options and its records, in one of the languages python, node, go and shell.
func Starter(language string) ([]byte, error) {
	name, ok := starters[language]
	if !ok {
		return nil, fmt.Errorf("no starter in %.40q: there are python, node, go and shell; in another language it is some twenty lines, by the text of stage 1", language)
	}
	return files.ReadFile("starters/" + name)
}
