package remote

import (
	"cmp"
	"fmt"
	"time"
)

// A Duration is a setting: its name, and where it is.
type Duration struct {
	Name    string
	Value   *time.Duration
	Default time.Duration // stands for 0
}

// SetDefaults gives durations that are 0 their default. One that is negative is an error.
func SetDefaults(all ...Duration) error {
	for _, d := range all {
		if *d.Value < 0 {
			return fmt.Errorf("negative %s %v", d.Name, *d.Value)
		}
		*d.Value = cmp.Or(*d.Value, d.Default)
	}
	return nil
}
