package apisource

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"kubeproxy/config/records"
	"kubeproxy/config/remote"
)

// What one list may hold: more than any API server of sound mind sends.
const (
	maxKeys     = 1 << 20
	maxRegistry = 512 << 20 // bytes
	maxChunk    = 4 << 20   // bytes that are held before they are compared with what is known
	maxMember   = 64 << 10  // bytes of a member of a list that is not its items
)

func tooManyKeys(p *path) error {
	return remote.Because(Unable, fmt.Errorf("more than %d %s: too many for a proxy", maxKeys, p.name))
}

// A listing is everything that one resource holds at one version.
type listing struct {
	version version
	list    records.List
	asked   time.Time // when the first page was asked for: everything from before is in the list
	at      time.Time // when the answer was complete

	seen  map[string]struct{} // keys: a v0.5.4 may list an object twice, of two namespaces that it does not name
	bytes int
}

// list asks for all objects of a resource at one version. begin makes the list that they are added to.
//
// The snapshot of a paged list is lost when it is compacted between two pages. Then another is taken, in larger pages, so that
// this ends however busy the registry is: a single page cannot be lost half-way.
func (c *client) list(ctx context.Context, p *path, begin func(n int) records.List) (*listing, error) {
	for limit := c.cfg.PageSize; ; limit *= 4 {
		l := &listing{asked: time.Now(), list: begin(limit), seen: make(map[string]struct{})}
		again, err := c.pages(ctx, p, limit, l)
		l.list.Wait()
		if again {
			continue
		}
		l.seen = nil
		return l, err
	}
}

// pages reads one snapshot. It reports whether the snapshot was lost, and another one may be taken.
func (c *client) pages(ctx context.Context, p *path, limit int, l *listing) (again bool, err error) {
	after := ""
	for {
		head, err := c.page(ctx, p, p.listPath(limit, after), l)
		switch {
		case err != nil:
			return after != "" && causeOf(err) == Expired, err
		case after == "":
			l.version = head.version
		case head.version != l.version:
			return false, remote.Because(Unable, fmt.Errorf("pages of one list are of two versions, %v and %v", l.version, head.version))
		}
		if after = head.after; after == "" {
			l.at = time.Now()
			return false, nil
		}
	}
}

// A head is what a page says about itself.
type head struct {
	version version
	after   string // what to ask for the next page with; empty: there is none
}

// page asks for one page and reads it.
func (c *client) page(ctx context.Context, p *path, from string, l *listing) (h head, err error) {
	r, err := c.get(ctx, from)
	if err != nil {
		return h, err
	}
	defer r.close()
	h, err = readPage(newScanner(r), p, l)
	return h, explain(r.ctx, err)
}

// readPage reads one page, as it comes, into a listing.
func readPage(s *scanner, p *path, l *listing) (h head, err error) {
	b := chunk{list: l, path: p}
	versioned := false
	err = s.members(func(name string) error {
		if name == "items" {
			return b.items(s)
		}
		text, long, err := s.next(maxMember)
		switch {
		case err != nil:
			return err
		case long:
			return errSyntax("a list has too long a member")
		case name == "resourceVersion" || name == "metadata":
			versioned = true
			return h.read(name, text)
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	if !versioned {
		return h, errSyntax("a list without a resourceVersion")
	}
	_, _ = s.peek() // reads to the end, so that the connection can be used again
	b.flush()
	return h, nil
}

// read reads the member of a page that has its version: in v1beta1 that is the version itself.
func (h *head) read(name string, text []byte) (err error) {
	m := struct {
		ResourceVersion json.RawMessage
		Continue        string
	}{ResourceVersion: text}
	if name == "metadata" {
		m.ResourceVersion = nil
		if json.Unmarshal(text, &m) != nil || m.ResourceVersion == nil {
			return errSyntax("a list whose metadata have no resourceVersion")
		}
	}
	h.after = m.Continue
	h.version, err = parseVersion(m.ResourceVersion)
	return err
}

// A chunk is the part of a page that was read last.
type chunk struct {
	list     *listing
	path     *path
	versions []records.Version
	size     int
}

// chunkLen is how many objects a chunk has at most.
const chunkLen = 500

// items reads the items of a page. v0.4.4 has null for none, or leaves them out.
func (b *chunk) items(s *scanner) error {
	if c, err := s.peek(); err == nil && c == 'n' {
		_, _, err := s.next(maxMember)
		return err
	}
	return s.elements('[', ']', func() error {
		text, long, err := s.next(maxObject)
		if err != nil {
			return err
		}
		v, err := b.path.record(text, long)
		if err != nil {
			return err
		}
		return b.add(v)
	})
}

// add adds a version to the list. Of a key that is there already the first counts.
func (b *chunk) add(v records.Version) error {
	if _, twice := b.list.seen[string(v.Key)]; twice {
		return nil
	}
	b.list.seen[string(v.Key)] = struct{}{}
	size := len(v.Key) + len(v.Value)
	if b.list.bytes += size; b.list.bytes > maxRegistry {
		return remote.Because(Unable, fmt.Errorf("more than %d MiB of %s: too much for a proxy", maxRegistry>>20, b.path.name))
	}
	if len(b.list.seen) > maxKeys {
		return tooManyKeys(b.path)
	}
	b.versions = append(b.versions, v)
	if b.size += size; b.size >= maxChunk || len(b.versions) == chunkLen {
		b.flush()
	}
	return nil
}

func (b *chunk) flush() {
	b.list.list.Add(b.versions)
	b.versions, b.size = b.versions[:0], 0
}

// newest asks how far the server has come, for one object.
func (c *client) newest(ctx context.Context, p *path) (version, error) {
	h, err := c.page(ctx, p, p.listPath(1, ""), &listing{seen: make(map[string]struct{})})
	return h.version, err
}
