package control

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/inert"
	"kubeproxy/registry"
)

// A failure is an error with the status of its answer.
type failure struct {
	status int
	error
}

func badRequest(format string, args ...any) error {
	return failure{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

func notFound(format string, args ...any) error {
	return failure{http.StatusNotFound, fmt.Errorf(format, args...)}
}

// respond writes what answer returns as JSON.
func respond(w http.ResponseWriter, r *http.Request, answer func(*http.Request) (any, error)) {
	value, err := answer(r)
	status := http.StatusOK
	if err != nil {
		value, status = Error{err.Error()}, http.StatusInternalServerError
		if f, ok := errors.AsType[failure](err); ok {
			status = f.status
		}
	}
	text, err := inert.Document(value)
	if err != nil {
		glog.Errorf("control: %s: %v", registry.Quote(r.URL.Path), err)
		status, text = http.StatusInternalServerError, []byte(`{"error":"it cannot be shown"}`+"\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // who does not want to know need not
}

// An Error is the answer to a request that fails.
type Error struct {
	Error string `json:"error"`
}
