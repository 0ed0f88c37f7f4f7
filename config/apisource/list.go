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
	maxRegistry = 512 << 20 // bytes of all pages, after their decompression
	maxPages    = 10_000    // at 500 objects a page five times as many as there may be objects
	maxBarren   = 100       // pages in a row without a new object: selectors may leave some empty
	maxMembers  = 100       // of a list, beside its items; servers send five
	maxChunk    = 4 << 20   // bytes that are held before they are compared with what is known
	maxMember   = 64 << 10  // bytes of such a member
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
	items int                 // those listed twice included
	bytes int                 // of all pages
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
		if again && limit < maxKeys {
			continue
		}
		l.seen = nil
		return l, err
	}
}

// pages reads one snapshot. It reports whether the snapshot was lost, and another one may be taken.
func (c *client) pages(ctx context.Context, p *path, limit int, l *listing) (again bool, err error) {
	after, barren := "", 0
	for n := 1; ; n++ {
		before := len(l.seen)
		head, err := c.page(ctx, p, p.listPath(limit, after), l)
		if barren++; len(l.seen) > before {
			barren = 0
		}
		switch {
		case err != nil:
			return after != "" && causeOf(err) == Expired, err
		case after == "":
			l.version = head.version
		case head.version != l.version:
			return false, remote.Because(Unable, fmt.Errorf("pages of one list are of two versions, %v and %v", l.version, head.version))
		}
		switch {
		case head.after == "":
			l.at = time.Now()
			return false, nil
		case head.after == after:
			return false, errEndless("its page %d leads to itself", n)
		case barren == maxBarren:
			return false, errEndless("%d pages in a row have no new object", maxBarren)
		case n == maxPages:
			return false, errEndless("there are more than %d pages", maxPages)
		}
		after = head.after
	}
}

// errEndless is what a list gets whose pages do not come to an end.
func errEndless(format string, args ...any) error {
	return remote.Because(Unable, fmt.Errorf("the list has no end: "+format, args...))
}

// A pageReader reads pages of a list, and bounds how long all of them may be.
type pageReader struct {
	*response
	path *path
	list *listing
}

// Read implements [io.Reader].
func (r pageReader) Read(b []byte) (int, error) {
	n, err := r.response.Read(b)
	if r.list.bytes += n; r.list.bytes > maxRegistry {
		return 0, remote.Because(Unable, fmt.Errorf("more than %d MiB of %s: too much for a proxy", maxRegistry>>20, r.path.name))
	}
	return n, err
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
	h, err = readPage(newScanner(pageReader{r, p, l}), p, l)
	return h, explain(r.ctx, err)
}

// readPage reads one page, as it comes, into a listing.
func readPage(s *scanner, p *path, l *listing) (h head, err error) {
	b := chunk{list: l, path: p}
	versioned, members := false, 0
	err = s.members(func(name string) error {
		if name == "items" {
			return b.items(s)
		}
		if members++; members > maxMembers {
			return errSyntax(fmt.Sprintf("a list has more than %d members", maxMembers))
		}
		text, err := s.short(maxMember)
		switch {
		case err != nil:
			return err
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
		_, err := s.short(maxMember)
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
	if b.list.items++; b.list.items > maxKeys {
		return tooManyKeys(b.path)
	}
	if _, twice := b.list.seen[string(v.Key)]; twice {
		return nil
	}
	b.list.seen[string(v.Key)] = struct{}{}
	size := len(v.Key) + len(v.Value)
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
