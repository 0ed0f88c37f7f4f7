package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A manual is what the program says of itself.
type manual struct {
	page, bash, zsh, fish []byte
}

// readManual asks a program that runs here: it says the same on every machine. The completions are for both names of the program.
func readManual(root string) (manual, error) {
	var m manual
	for _, part := range []struct {
		words []string
		into  *[]byte
	}{{[]string{"man"}, &m.page}, {[]string{"completion", "bash"}, &m.bash}, {[]string{"completion", "zsh"}, &m.zsh}, {[]string{"completion", "fish"}, &m.fish}} {
		cmd := exec.Command("go", append([]string{"run", "./cmd/kube-proxy", "help"}, part.words...)...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return m, fmt.Errorf("kube-proxy help %s: %w", part.words, err)
		}
		*part.into = text
	}
	for text, line := range map[*[]byte]string{&m.bash: "\ncomplete -F _kube_proxy kube-proxy\n", &m.zsh: "#compdef kube-proxy\n"} {
		if bytes.Count(*text, []byte(line)) != 1 {
			return m, fmt.Errorf("a completion does not have %q once", line)
		}
		*text = bytes.Replace(*text, []byte(line), []byte(strings.TrimSuffix(line, "\n")+" "+packageName+"\n"), 1)
	}
	m.fish = append(m.fish, "complete -c "+packageName+" -w kube-proxy\n"...) // fish has completions of a name that wraps another
	return m, nil
}
