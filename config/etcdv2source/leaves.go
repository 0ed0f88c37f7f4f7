package etcdv2source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// maxKeys is how many keys a registry may have, and maxDepth how deep their directories may be.
const (
	maxKeys  = 1 << 20
	maxDepth = 100
)

// root is the directory of the registry.
var root = strings.TrimSuffix(registry.Prefix, "/")

// A leafReader reads the answer to a list as it comes, and keeps of it the keys that hold values. The text of a list may be half a
// gigabyte: held whole, and decoded into a tree of all directories, it would take four times as much.
type leafReader struct {
	json   *json.Decoder
	leaves []*node
}

// readLeaves gives the keys of a listed directory that hold values, in the order of their bytes: etcd sorts each directory for itself.
// The answer may have max bytes.
func readLeaves(r io.Reader, max int64) ([]*node, error) {
	limited := &io.LimitedReader{R: r, N: max + 1}
	l := &leafReader{json: json.NewDecoder(limited)}
	top, err := l.answer()
	switch {
	case limited.N == 0:
		return nil, errTooLarge(max)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, io.ErrUnexpectedEOF // it was cut: etcd went away
	case err != nil:
		return nil, explained(err)
	case top == nil || !top.Dir:
		return nil, remote.Because(unable, fmt.Errorf("%s is no directory", root))
	}
	slices.SortFunc(l.leaves, func(a, b *node) int { return strings.Compare(a.Key, b.Key) })
	return l.leaves, nil
}

// explained gives an error of a connection as it is, and says of others what they are about.
func explained(err error) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || kind {
		return errSyntax(err)
	}
	return err
}

var errShape = remote.Because(unable, errors.New("not the JSON of etcd 2: it has another shape"))

// answer reads all of it, to the end, and returns the directory without what is in it.
func (l *leafReader) answer() (top *node, err error) {
	err = l.object(func(name string) error {
		if name != "node" {
			return l.skip()
		}
		top, err = l.node(0)
		return err
	})
	if err != nil {
		return nil, err
	}
	switch _, err := l.json.Token(); {
	case err == io.EOF:
		return top, nil
	case err != nil:
		return nil, err
	}
	return nil, errShape
}

// node reads one node, and those below it.
func (l *leafReader) node(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, remote.Because(unable, fmt.Errorf("directories are nested more than %d deep", maxDepth))
	}
	n := new(node)
	err := l.object(func(name string) error {
		switch name {
		case "key":
			return l.json.Decode(&n.Key)
		case "dir":
			return l.json.Decode(&n.Dir)
		case "value":
			return l.json.Decode(&n.Value)
		case "modifiedIndex":
			return l.json.Decode(&n.ModifiedIndex)
		case "createdIndex":
			return l.json.Decode(&n.CreatedIndex)
		case "nodes":
			return l.nodes(depth + 1)
		}
		return l.skip()
	})
	if err != nil || n.Dir || !strings.HasPrefix(n.Key, registry.Prefix) || hidden(n.Key) {
		return n, err
	}
	if l.leaves = append(l.leaves, n); len(l.leaves) > maxKeys {
		return nil, remote.Because(unable, fmt.Errorf("more than %d keys below %s: too many for a proxy", maxKeys, registry.Prefix))
	}
	return n, nil
}

// nodes reads an array of nodes.
func (l *leafReader) nodes(depth int) error {
	switch begin, err := l.json.Token(); {
	case err != nil:
		return err
	case begin == nil:
		return nil
	case begin != json.Delim('['):
		return errShape
	}
	for l.json.More() {
		if _, err := l.node(depth); err != nil {
			return err
		}
	}
	_, err := l.json.Token()
	return err
}

// object reads an object, or null for none, and calls member for each name: it must read the value.
func (l *leafReader) object(member func(name string) error) error {
	switch begin, err := l.json.Token(); {
	case err != nil:
		return err
	case begin == nil:
		return nil
	case begin != json.Delim('{'):
		return errShape
	}
	for l.json.More() {
		name, err := l.json.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string) // what else names a member is an error of the decoder
		if err := member(text); err != nil {
			return err
		}
	}
	_, err := l.json.Token()
	return err
}

// skip reads a value, and holds no more of it than its longest part.
func (l *leafReader) skip() error {
	for depth := 0; ; {
		token, err := l.json.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
