package etcdv2source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"kubeproxy/config"
	"kubeproxy/config/remote"
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
		return errTooLarge(max)
	case len(text) == 0:
		return io.ErrUnexpectedEOF // a poll that ends so was cut: etcd went away
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errSyntax(err)
	}
	return nil
}

func errTooLarge(max int64) error {
	return remote.Because(unable, fmt.Errorf("an answer of more than %d MiB: too much for a proxy", max>>20))
}

func errSyntax(err error) error {
	return remote.Because(unable, fmt.Errorf("not the JSON of etcd 2: %s", config.OneLine(err.Error())))
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

// hidden reports whether etcd keeps a key out of lists: a part of it begins with an underscore. The history of events is not filtered.
func hidden(key string) bool {
	for ; key != "/" && key != "."; key = path.Dir(key) {
		if strings.HasPrefix(path.Base(key), "_") {
			return true
		}
	}
	return false
}
