package apisource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"kubeproxy/config/records"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// maxObject is how much is kept of one object: one byte more than a record may have, so that a longer one is rejected.
const maxObject = registry.MaxRecordBytes + 1

// maxEvent is how much is kept of one event, which has an object and little else.
const maxEvent = maxObject + 1<<10

// An event is one change, as a watch tells it.
type event struct {
	records.Version      // of a bookmark only the Revision
	gone            bool // the object was deleted
	bookmark        bool // nothing changed: the watch has come to this version
}

// How long a watch with bookmarks may be silent: a server sends one each minute. And how late the end of a watch may come.
const (
	maxSilence = 3 * time.Minute
	lateEnd    = 15 * time.Second
)

// watch tells of all changes after a version. It returns nil when the server has ended the watch as it was asked to, with
// nothing lost: a watch from the version of the last event goes on. One that ends much too early is an error, so that the next one
// begins after a pause.
func (c *client) watch(ctx context.Context, p *path, from version, tell func(event) error) error {
	timeout, began := watchTimeout(), time.Now()
	r, err := c.get(ctx, p.watchPath(from, timeout))
	if err != nil {
		return err
	}
	defer r.close()
	r.endless()
	if p.paged {
		late := time.AfterFunc(timeout+lateEnd, func() {
			r.cancel(remote.Because(Silent, fmt.Errorf("the watch of %s has not ended though it was asked to", p.name)))
		})
		defer late.Stop()
	}
	var silence *time.Timer // nil until there was a bookmark: an old server sends none
	s := newScanner(r)
	for {
		text, long, err := s.next(maxEvent)
		switch {
		case errors.Is(err, io.EOF) && time.Since(began) < maxBackoff:
			return remote.Because(Brief, errors.New("the server ended it as soon as it had begun"))
		case errors.Is(err, io.EOF) && p.paged:
			return nil
		case errors.Is(err, io.EOF):
			return remote.Because(Broken, errors.New("the server ended the watch"))
		case err != nil:
			return explain(r.ctx, err)
		}
		ev, err := p.event(text, long)
		if err != nil {
			return err
		}
		switch {
		case silence != nil:
			silence.Reset(maxSilence)
		case ev.bookmark:
			silence = time.AfterFunc(maxSilence, func() {
				r.cancel(remote.Because(Stale, fmt.Errorf("the watch of %s was silent for %v", p.name, maxSilence)))
			})
			defer silence.Stop()
		}
		if err := tell(ev); err != nil {
			return err
		}
	}
}

// event reads an event. An ERROR event is an error.
func (p *path) event(text []byte, long bool) (ev event, err error) {
	var said struct {
		Type   string
		Object json.RawMessage
	}
	if long {
		said.Type, said.Object = cutEvent(text)
	} else if json.Unmarshal(text, &said) != nil {
		return ev, errSyntax("an event begins with " + registry.Quote(string(text[:min(len(text), 64)])))
	}
	switch said.Type {
	case "ADDED", "MODIFIED":
	case "DELETED":
		ev.gone = true
	case "BOOKMARK":
		ev.bookmark = true
	case "ERROR":
		var s status
		_ = json.Unmarshal(said.Object, &s) // without a message there is none
		return ev, explainEvent(s)
	default:
		return ev, remote.Because(Unable, errors.New("an event of an unknown type: "+registry.Quote(said.Type)))
	}
	if ev.Version, err = p.record(said.Object, long); err != nil {
		return ev, err
	}
	if ev.Revision == 0 && !long {
		return ev, remote.Because(Unable, errors.New("an event without a resourceVersion"))
	}
	return ev, nil
}

// cutEvent reads an event of which only the beginning was kept: servers put the type before the object.
func cutEvent(text []byte) (kind string, object json.RawMessage) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return "", nil
	}
	for {
		switch name, err := d.Token(); {
		case err != nil:
			return "", nil
		case name == "object":
			return kind, bytes.TrimLeft(text[d.InputOffset():], ": \t\r\n")
		case name != "type" || d.Decode(&kind) != nil:
			return "", nil
		}
	}
}
