package statuspage

import (
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/statuspage/files"
)

// How often changes are sent, and how long a viewer may take to read them.
const (
	period       = time.Second
	writeTimeout = 10 * time.Second
)

// events sends the parts of a page that have changed, as server-sent events, until the viewer leaves. Each event is a JSON object: the
// HTML of elements by their ids. The first one has all parts: they may have changed since the page was made.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	make, ok := map[string]func(*http.Request) view{
		"/": p.overview, "/status/service": p.service, "/status/endings": p.endings,
	}[r.URL.Query().Get("of")]
	if !ok {
		http.Error(w, "there are no changes of such a page", http.StatusNotFound)
		return
	}
	files.SetHeaders(w.Header(), "text/event-stream")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	seen := newSeen()
	for {
		changed, err := seen.changes(make(r).parts)
		if err != nil {
			glog.Errorf("status page: %v", err)
			return
		}
		event, err := files.Event(changed)
		if err != nil {
			glog.Errorf("status page: %v", err)
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder of tests has none
		if _, err := w.Write(event); err != nil {
			return // the viewer has left
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// A seen is what a viewer has, by hashes.
type seen struct {
	seed  maphash.Seed
	parts map[string]uint64
	rows  map[string][]string // the ids of the rows of a table
}

func newSeen() *seen {
	return &seen{maphash.MakeSeed(), make(map[string]uint64), make(map[string][]string)}
}

// changes renders the parts that differ from what the viewer has. A table whose rows are others is sent as a whole.
func (s *seen) changes(parts []part) (map[string]string, error) {
	changed := make(map[string]string)
	for _, p := range parts {
		if p.rows == nil {
			if err := s.add(changed, p); err != nil {
				return nil, err
			}
			continue
		}
		var ids []string
		rows := make(map[string]string)
		for _, row := range p.rows {
			ids = append(ids, row.id)
			if err := s.add(rows, row); err != nil {
				return nil, err
			}
		}
		if !slices.Equal(s.rows[p.id], ids) {
			for _, id := range s.rows[p.id] {
				if !slices.Contains(ids, id) {
					delete(s.parts, id) // or the rows of all pages would pile up
				}
			}
			s.rows[p.id], rows = ids, nil
			text, err := render(p)
			if err != nil {
				return nil, err
			}
			changed[p.id] = text
		}
		maps.Copy(changed, rows)
	}
	return changed, nil
}

// add renders a part, and adds it to changed if it differs.
func (s *seen) add(changed map[string]string, p part) error {
	text, err := render(p)
	if err != nil {
		return err
	}
	if sum := maphash.String(s.seed, text); s.parts[p.id] != sum {
		s.parts[p.id] = sum
		changed[p.id] = text
	}
	return nil
}

func render(p part) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, p.template, p.data)
	return b.String(), err
}
