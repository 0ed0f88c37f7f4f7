package etcdv2source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/config"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A node is a key of etcd 2 and its value, or a directory and what is in it.
type node struct {
	Key           string  `json:"key"`
	Dir           bool    `json:"dir"`
	Value         string  `json:"value"`
	Nodes         []*node `json:"nodes"`
	ModifiedIndex int64   `json:"modifiedIndex"`
	CreatedIndex  int64   `json:"createdIndex"`
}

// A response is etcd's answer to a GET: to a list, what there is; to a poll, what has happened.
type response struct {
	Action   string `json:"action"`
	Node     *node  `json:"node"`
	PrevNode *node  `json:"prevNode"`
}

// An apiError is etcd's answer when there is none. It is an error of a request, not of the connection.
type apiError struct {
	status  int
	Code    int    `json:"errorCode"`
	Message string `json:"message"`
	Cause   string `json:"cause"`
	Index   int64  `json:"index"`
}

func (e *apiError) Error() string {
	if e.Code == 0 {
		return fmt.Sprintf("HTTP status %d, which is no answer of etcd 2", e.status)
	}
	return fmt.Sprintf("%s (errorCode %d): %s", config.OneLine(e.Message), e.Code, config.OneLine(e.Cause))
}

// Codes of errors, as in etcd's Documentation/errorcode.md.
const (
	codeKeyNotFound  = 100
	codeUnauthorized = 110
	codeRaftInternal = 300
	codeNoLeader     = 301
	codeEventCleared = 401
)

// What an answer may have, in bytes. The value of an event stands in it twice, before and after, and JSON may take six bytes for one.
const (
	maxList  = 512 << 20
	maxEvent = 32 << 20
	maxTop   = 1 << 20 // of the registry, which has three directories
	maxError = 64 << 10
)

// decode reads an answer of at most max bytes.
func decode(r io.Reader, max int64, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, max+1))
	switch {
	case err != nil:
		return err
	case int64(len(text)) > max:
		return remote.Because(unable, fmt.Errorf("an answer of more than %d MiB: too much for a proxy", max>>20))
	case len(text) == 0:
		return io.ErrUnexpectedEOF // a poll that ends so was cut: etcd went away
	}
	if err := json.Unmarshal(text, into); err != nil {
		return remote.Because(unable, fmt.Errorf("not the JSON of etcd 2: %s", config.OneLine(err.Error())))
	}
	return nil
}

// decodeError reads an answer whose status is not 200.
func decodeError(r io.Reader, status int) error {
	e := &apiError{status: status}
	text, err := io.ReadAll(io.LimitReader(r, maxError))
	if err != nil {
		return err
	}
	if json.Unmarshal(text, e) != nil {
		e.Code, e.Message = 0, "" // a page of another program
	}
	return e
}

// indexOf reads the index of etcd from the head of an answer.
func indexOf(resp *http.Response) (int64, error) {
	index, err := strconv.ParseInt(resp.Header.Get("X-Etcd-Index"), 10, 64)
	if err != nil || index < 0 {
		return 0, remote.Because(unable, errors.New("an answer without X-Etcd-Index: this is no etcd 2"))
	}
	return index, nil
}

// maxKeys is how many keys a registry may have.
const maxKeys = 1 << 20

// root is the directory of the registry.
var root = strings.TrimSuffix(registry.Prefix, "/")

// leaves gives the keys of a listed directory that hold values, in the order of their bytes: etcd sorts each directory for itself.
func leaves(top *node) ([]*node, error) {
	if top == nil || !top.Dir {
		return nil, remote.Because(unable, fmt.Errorf("%s is no directory", root))
	}
	var all []*node
	var walk func(n *node) bool
	walk = func(n *node) bool {
		if n == nil {
			return true
		}
		if !n.Dir {
			all = append(all, n)
			return len(all) <= maxKeys
		}
		return !slices.ContainsFunc(n.Nodes, func(n *node) bool { return !walk(n) })
	}
	if !walk(top) {
		return nil, remote.Because(unable, fmt.Errorf("more than %d keys below %s: too many for a proxy", maxKeys, registry.Prefix))
	}
	all = slices.DeleteFunc(all, func(n *node) bool { return !strings.HasPrefix(n.Key, registry.Prefix) || hidden(n.Key) })
	slices.SortFunc(all, func(a, b *node) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// hidden reports whether etcd keeps a key out of lists: a part of it begins with an underscore. The history of events is not filtered.
func hidden(key string) bool {
	for ; key != "/" && key != "."; key = path.Dir(key) {
		if strings.HasPrefix(path.Base(key), "_") {
			return true
		}
	}
	return false
}
