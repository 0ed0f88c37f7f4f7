package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/config/filesource"
	"kubeproxy/registry/decode"
)

// fileOptions says which directory holds records.
type fileOptions struct{ dir string }

func (o *fileOptions) addFlags(c *commandline.Command) {
	c.Group(topicRegistry, func(f *pflag.FlagSet) {
		f.StringVar(&o.dir, "registry_dir", "", "`directory` with records, each in a file whose path below it is the key; alone, or beside another source, which then comes first")
	})
}

// given reports whether the flags name a directory.
func (o *fileOptions) given() bool { return o.dir != "" }

func (o *fileOptions) open(sync time.Duration, decoder decode.Decoder) (*filesource.Source, error) {
	s, err := filesource.New(filesource.Config{Dir: o.dir, SyncPeriod: sync, Decoder: decoder})
	if err != nil {
		return nil, fmt.Errorf("-registry_dir: %w", err)
	}
	return s, nil
}
