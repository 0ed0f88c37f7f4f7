package commandline

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// A Setting is the value of a flag from elsewhere than the command line.
type Setting struct {
	Flag   string
	Values []string // one, unless the flag holds a list
	Where  string   // where it comes from; errors begin with it
}

// A list is a flag that may have several values.
type list interface{ IsList() }

// Fill sets the flags that the command line does not have. It refuses those that only mean something on the command line, and the
// unknown.
func Fill(flags *pflag.FlagSet, settings []Setting, only ...string) error {
	given := make(map[string]bool)
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	filled := make(map[string]bool)
	for _, s := range settings {
		if slices.Contains(only, string(underscored(nil, s.Flag))) {
			return fmt.Errorf("%s-%s can stand on the command line only", s.Where, s.Flag)
		}
		if err := fill(flags, s, given, filled); err != nil {
			return fmt.Errorf("%s%w", s.Where, err)
		}
	}
	return nil
}

func fill(flags *pflag.FlagSet, s Setting, given, filled map[string]bool) error {
	f := flags.Lookup(s.Flag)
	if f == nil {
		hint := ""
		if meant := closest(string(underscored(nil, s.Flag)), flagNames(flags)); meant != "" {
			hint = "; did you mean " + meant + "?"
		}
		return fmt.Errorf("there is no flag -%s%s", OneLine(cut(s.Flag)), hint)
	}
	if filled[f.Name] {
		return fmt.Errorf("-%s is there twice", f.Name)
	}
	filled[f.Name] = true
	if given[f.Name] {
		return nil
	}
	if _, several := f.Value.(list); !several && len(s.Values) != 1 {
		return fmt.Errorf("-%s wants one value, and has a list of %d", f.Name, len(s.Values))
	}
	for _, value := range s.Values {
		if err := flags.Set(f.Name, value); err != nil {
			return inOldWords(flags, err)
		}
	}
	return nil
}

// cut bounds a name for an error.
func cut(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return name[:most] + "..."
}
