package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// pageDir has the parts of the page of docs/page.md.
const pageDir = "scripts/page"

// compile compiles the program of the page, and returns where wasm_exec.js is, which has to be of the same Go.
func compile(root, wasm string) (exec string, err error) {
	cmd := goTool(root, "build", "-trimpath", "-ldflags=-s -w", "-o", wasm, "./"+pageDir)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w\n%s", pageDir, err, out)
	}
	goroot, err := goTool(root, "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(goroot)), "lib/wasm/wasm_exec.js"), err
}

func goTool(root string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	return cmd
}

// buildPage writes the page: one file, which needs no other, no server and no network.
func buildPage(root, out string) error {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	wasm := filepath.Join(dir, "page.wasm")
	wasmExec, err := compile(root, wasm)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	sources, err := pageSources(root)
	if err != nil {
		return err
	}
	part := func(path string) (text []byte) {
		if err == nil {
			text, err = os.ReadFile(path)
		}
		return text
	}
	own := func(name string) string { return string(part(filepath.Join(root, pageDir, name))) }
	code := strings.Join([]string{
		string(part(wasmExec)), own("machine.js"), own("lessons.js"),
		"const SOURCES = " + string(sources) + ";", "const PROGRAM = \"" + base64.StdEncoding.EncodeToString(packed.Bytes()) + "\";", own("page.js"),
	}, "\n")
	if strings.Contains(code, "</script") {
		return fmt.Errorf("the code of the page contains </script, which would end it")
	}
	html := strings.NewReplacer("/* style.css */", own("style.css"), "/* code */", code).Replace(own("page.html"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(html), 0o644)
}

// quoted finds the sources that lessons lead to: ["path", "text of the line"].
var quoted = regexp.MustCompile(`\["([a-z_/]+\.go)", "([^"]+)"\]`)

// pageSources has the text of each file that a log line or a lesson of the page leads to, by its path. A line that a lesson names has to be there.
func pageSources(root string) ([]byte, error) {
	all := make(map[string]string)
	cmd := goTool(root, "list", "-deps", "-f", `{{if not .Standard}}{{$d := .Dir}}{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}`, "./"+pageDir)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./%s: %w", pageDir, err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	lessons, err := os.ReadFile(filepath.Join(root, pageDir, "lessons.js"))
	if err != nil {
		return nil, err
	}
	marks := make(map[string][]string)
	for _, m := range quoted.FindAllStringSubmatch(string(lessons), -1) {
		marks[m[1]] = append(marks[m[1]], m[2])
	}
	for _, file := range strings.Fields(string(list)) {
		path, err := filepath.Rel(top, file)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if marks[path] != nil || bytes.Contains(text, []byte("glog")) {
			all[path] = string(text)
		}
	}
	for path, texts := range marks {
		for _, text := range texts {
			if !strings.Contains(all[path], text) {
				return nil, fmt.Errorf("%s/lessons.js leads to %q of %s, which is not there", pageDir, text, path)
			}
		}
	}
	return json.Marshal(all) // which escapes <, so that no source ends the script
}
