package remote

import (
	"errors"
	"fmt"
	"io"
	"os"

	"kubeproxy/registry"
)

// A Text is kept in a file, or is given. The zero Text is none.
type Text struct {
	Path string
	Data []byte // counts where Path is empty
}

// maxFile bounds what is read of one file: more than any bundle of certificates needs.
const maxFile = 1 << 20

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.Path == "" && len(t.Data) == 0 }

// Read returns the text, from a file of at most 1 MiB. Its errors name the file, and never what is in it.
func (t Text) Read() ([]byte, error) {
	if t.Path == "" {
		return t.Data, nil
	}
	text, err := readFile(t.Path)
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", registry.Quote(t.Path), err)
	}
	return text, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return text, err
}

// Name says where the text is, for an error.
func (t Text) Name() string {
	if t.Path == "" {
		return "given in the configuration"
	}
	return registry.Quote(t.Path)
}
