package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"kubeproxy/registry"
)

// maxFileSize bounds a file. All flags together need a few kilobytes.
const maxFileSize = 256 << 10

// ReadFile reads a file of -config. Settings are in the order of their names. Notes are about what has no effect here.
func ReadFile(path string) (settings []Setting, notes []string, err error) {
	text, err := readBounded(path)
	if err == nil {
		settings, notes, err = parse(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("-config=%s: %w", registry.Quote(path), err)
	}
	for i := range settings {
		settings[i].Where = fmt.Sprintf("-config=%s: %s", registry.Quote(path), settings[i].Where)
	}
	return settings, notes, nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the path is told already
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file") // opening a pipe might never end
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("larger than %d KiB", maxFileSize>>10)
	}
	return text, nil
}

// parse reads the document of a file.
func parse(text []byte) ([]Setting, []string, error) {
	documents := slices.DeleteFunc(aDocument.Split(string(text), -1), func(d string) bool { return blank(d) })
	if len(documents) > 1 {
		return nil, nil, errors.New("there is more than one document in it")
	}
	encoded, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		if again := setTwice(text, err); again != nil {
			err = again
		}
		return nil, nil, oneLine(err)
	}
	var all any
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, nil, oneLine(err)
	}
	fields, ok := all.(map[string]any)
	switch {
	case all == nil:
		return nil, nil, nil // an empty file says nothing
	case !ok:
		return nil, nil, errors.New("want names of flags with their values, as in \"udp_timeout: 30s\"")
	}
	if fields["kind"] != nil || fields["apiVersion"] != nil {
		return kubernetes(text, fields)
	}
	var settings []Setting
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		values, err := scalars(fields[name])
		if err != nil {
			return nil, nil, fmt.Errorf("%s%s: %w", lineOf(text, name), label(name), err)
		}
		settings = append(settings, Setting{Flag: name, Values: values, Where: lineOf(text, name)})
	}
	return settings, nil, nil
}
