package commandline

import (
	"embed"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/spf13/pflag"
)

//go:embed completion.bash completion.zsh completion.fish
var scripts embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"zsh": zshWords, "fish": fishWords, "join": strings.Join}).ParseFS(scripts, "*"))

// completion prints the completions for a shell.
func (m *Manual) completion(w io.Writer, shell string) error {
	switch shell {
	case "bash", "zsh", "fish":
		return templates.ExecuteTemplate(w, "completion."+shell, m.completions())
	}
	wrong := &mistake{text: fmt.Sprintf("there are no completions for the shell %s: bash, zsh or fish", OneLine(shell))}
	if meant := closest(shell, []string{"bash", "zsh", "fish"}); meant != "" {
		wrong.meant = "help completion " + meant
	}
	return wrong
}

// completions is what the shells need to know.
type completions struct {
	Program  string
	Function string   // the program's name as one of a function
	Pages    []string // what may follow "help"
	Commands []completedCommand
}

type completedCommand struct {
	Word, Summary string // Word is empty for the program itself
	Directory     bool   // a directory may follow the flags
	Service       bool   // a service may follow them, of a running node
	Endpoint      bool   // and then one of its endpoints
	Flags         []completedFlag
}

type completedFlag struct {
	Name, Value, Text string
	Boolean           bool     // needs no value
	File, Directory   bool     // what the value names
	Service, Endpoint bool     // likewise, of a running node
	Choices           []string // what the value may be, if that is known
}

func (m *Manual) completions() completions {
	p := m.program()
	all := completions{Program: p.Name, Function: strings.ReplaceAll(p.Name, "-", "_"), Pages: m.pages()}
	for _, c := range m.Commands {
		command := completedCommand{Word: m.word(c), Summary: c.Summary, Directory: strings.Contains(c.Args, "DIRECTORY"),
			Service: strings.Contains(c.Args, "SERVICE"), Endpoint: strings.Contains(c.Args, "SERVICE ADDR")}
		c.Flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				command.Flags = append(command.Flags, completed(f))
			}
		})
		all.Commands = append(all.Commands, command)
	}
	return all
}

func completed(f *pflag.Flag) completedFlag {
	word, text := value(f)
	done := completedFlag{Name: f.Name, Value: word, Text: text, Boolean: isBoolean(f), File: word == "file" || word == "path", Directory: word == "directory",
		Service: word == "service", Endpoint: word == "endpoint"}
	if c, ok := f.Value.(chooser); ok {
		done.Choices = c.Choices()
	} else if done.Boolean {
		done.Choices = []string{"true", "false"}
	}
	return done
}

// zshWords quotes a text for a specification of zsh's _arguments inside single quotes.
func zshWords(s string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `[`, `\[`, `]`, `\]`, `'`, `'\''`).Replace(s)
}

// fishWords quotes a text for fish inside single quotes.
func fishWords(s string) string { return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) }
