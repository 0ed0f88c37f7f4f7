// Package school holds the texts of the school and the programs to begin with, for the program that prints them.
package school

import (
	"embed"
	"fmt"
	"io/fs"
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
