package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"kubeproxy/registry"
)

// aDocument is the line between two documents.
var aDocument = regexp.MustCompile(`(?m)^---(\s|$)`)

// blank reports whether a text holds nothing but comments.
func blank(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

// scalars returns the values of one flag: one, or those of a list.
func scalars(value any) ([]string, error) {
	switch v := value.(type) {
	case string:
		return []string{v}, nil
	case json.Number:
		return []string{v.String()}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case nil:
		return nil, errors.New("has no value; \"\" is an empty one")
	case []any:
		var all []string
		for _, item := range v {
			one, err := scalars(item)
			if _, nested := item.([]any); nested || err != nil {
				return nil, errors.New("wants a list of words or numbers")
			}
			all = append(all, one[0])
		}
		return all, nil
	}
	return nil, errors.New("wants a value or a list, and has further keys")
}

// lineOf says where a key of the document stands, if a line begins with it.
func lineOf(text []byte, name string) string {
	key := regexp.MustCompile(`(?m)^["']?` + regexp.QuoteMeta(name) + `["']?\s*:`)
	at := key.FindIndex(text)
	if at == nil {
		return ""
	}
	return fmt.Sprintf("line %d: ", 1+bytes.Count(text[:at[0]], []byte("\n")))
}

// anAlreadySet is what the YAML reader says of a key that is there twice.
var anAlreadySet = regexp.MustCompile(`line (\d+): key "([^"]*)" already set in map`)

// setTwice is the error about a key of the document that is there twice, in words that name both lines; nil if that is not what is wrong.
func setTwice(text []byte, err error) error {
	m := anAlreadySet.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	first := strings.TrimSuffix(lineOf(text, m[2]), ": ")
	if first == "" || first == "line "+m[1] {
		return nil // it is below another key
	}
	return fmt.Errorf("line %s: %s is there already, in %s (several values are a list: [A, B])", m[1], label(m[2]), first)
}

// label is a key as errors show it.
func label(name string) string {
	if len(name) <= 64 && OneLine(name) == name {
		return name
	}
	return registry.Quote(name)
}

// oneLine is an error of the YAML reader in one line, bounded.
func oneLine(err error) error {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return errors.New(text)
}
