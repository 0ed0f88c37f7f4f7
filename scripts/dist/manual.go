package main

import (
	"fmt"
	"os"
	"os/exec"
)

// A manual is what the program says of itself.
type manual struct {
	page, bash, zsh []byte
}

// readManual asks a program that runs here: it says the same on every machine.
func readManual(root string) (manual, error) {
	var m manual
	for _, part := range []struct {
		words []string
		into  *[]byte
	}{{[]string{"man"}, &m.page}, {[]string{"completion", "bash"}, &m.bash}, {[]string{"completion", "zsh"}, &m.zsh}} {
		cmd := exec.Command("go", append([]string{"run", "./cmd/kube-proxy", "help"}, part.words...)...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return m, fmt.Errorf("kube-proxy help %s: %w", part.words, err)
		}
		*part.into = text
	}
	return m, nil
}
