package truth

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// An experiment that nothing can fail proves nothing. A Breakage takes one idea out of the code, the way
// a hurried edit would; with that built in (go build -overlay), the experiment must fail, and say what
// differs.
//
// An archive names the files, the lines that it breaks and what stands there instead, so that it
// cannot quietly grow old: lines that are not found, or found twice, are an error.
type Breakage struct {
	Name    string         // of the archive
	Message *regexp.Regexp // what the experiment must say
	Hint    string         // how the experiment comes to it soonest, in its own words; may be empty

	edits []edit
}

// An edit replaces one passage of one file.
type edit struct{ file, old, new string }

// ReadBreakage reads an archive: a comment, for each edit the parts "FILE: old" and "FILE: new", the
// part "message" and, if need be, the part "hint".
func ReadBreakage(archive string) (Breakage, error) {
	b := Breakage{Name: strings.TrimSuffix(filepath.Base(archive), ".txtar")}
	a, err := txtar.ParseFile(archive)
	if err != nil {
		return b, err
	}
	for i, part := range a.Files {
		file, what, _ := strings.Cut(part.Name, ": ")
		switch {
		case part.Name == "message":
			if b.Message, err = regexp.Compile(strings.TrimSpace(string(part.Data))); err != nil {
				return b, fmt.Errorf("%s: %w", archive, err)
			}
		case part.Name == "hint":
			b.Hint = strings.TrimSpace(string(part.Data))
		case what == "old" && i+1 < len(a.Files) && a.Files[i+1].Name == file+": new":
			b.edits = append(b.edits, edit{file, string(part.Data), string(a.Files[i+1].Data)})
		case what != "new":
			return b, fmt.Errorf("%s: unknown part %q", archive, part.Name)
		}
	}
	if b.Message == nil || b.edits == nil {
		return b, fmt.Errorf("%s: no message, or nothing to break", archive)
	}
	return b, nil
}

// Overlay writes the broken files to dir, and returns the file that go build -overlay wants. The
// files of the archive are those of the directory source.
func (b Breakage) Overlay(source, dir string) (overlay string, err error) {
	broken := make(map[string]string) // by file
	for _, e := range b.edits {
		if _, ok := broken[e.file]; !ok {
			text, err := os.ReadFile(filepath.Join(source, e.file))
			if err != nil {
				return "", err
			}
			broken[e.file] = string(text)
		}
		if n := strings.Count(broken[e.file], e.old); n != 1 {
			return "", fmt.Errorf("%s: %s has %d passages like this one; want 1, or the breakage breaks nothing:\n%s", b.Name, e.file, n, e.old)
		}
		broken[e.file] = strings.Replace(broken[e.file], e.old, e.new, 1)
	}
	var description struct{ Replace map[string]string }
	description.Replace = make(map[string]string)
	for file, text := range broken {
		path, err := filepath.Abs(filepath.Join(source, file))
		if err != nil {
			return "", err
		}
		description.Replace[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(description.Replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(description)
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
