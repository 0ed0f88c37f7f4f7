package records

import (
	"slices"
	"sync"

	"kubeproxy/registry/decode"
)

// A List is everything that the registry holds at one revision, as it is read page by page. Of what the state knew when it
// came, nearly nothing is kept: a list of a registry that has hardly changed takes little room, however long it is.
//
// [State.NewList] makes a list for a state. The zero List is for those who have none: it keeps every version.
type List struct {
	state   *State    // nil: nothing is known
	news    []Version // copies
	known   []unchangedVersion
	decoder *decoder // of news, page for page; nil where they are not needed soon
	holders []listed
}

// An unchangedVersion is a listed version whose bytes were those of the entry when they came, and neither bad nor odd. What the entry
// made of them takes the place of the bytes.
type unchangedVersion struct {
	entry    *entry // for its key and its life only; the rest may change
	revision int64
	leased   bool
	sum      uint64
	content  content
}

func (f unchangedVersion) reading() reading {
	return reading{key: f.entry.key, created: f.entry.created, revision: f.revision, leased: f.leased, sum: f.sum, known: true, content: f.content}
}

// isNewest reports whether these are still the bytes of the entry, and the list is no older than what was last seen of it.
func (f unchangedVersion) isNewest() bool {
	e := f.entry
	return !e.over && e.sum == f.sum && e.seen <= f.revision
}

// NewList begins a list with room for n keys. While the state knows no key each value will have to be decoded: that is done
// on all processors, while the next page is on its way. Any goroutine may call it.
func (s *State) NewList(n int) List {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		return List{state: s, news: make([]Version, 0, n), decoder: &decoder{how: s.decoder}}
	}
	return List{state: s, known: make([]unchangedVersion, 0, n)}
}

// Add adds a page, which may be used again afterwards. Any goroutine may call it; the pages of a list come one after the
// other, and the keys in the order of their bytes.
func (l *List) Add(page []Version) {
	from := len(l.news)
	if l.state == nil || l.decoder != nil {
		l.news = append(l.news, page...)
	} else {
		l.filterUnchanged(page)
	}
	keep(l.news[from:])
	l.decoder.add(l.news[from:])
}

// filterUnchanged sorts a page: what is known is added to known, and the rest to news.
func (l *List) filterUnchanged(page []Version) {
	s := l.state
	sums := make([]uint64, len(page))
	for i, v := range page { // the state need not be locked for this
		sums[i] = s.sum(v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range page {
		e := s.entries[string(v.Key)]
		if e == nil || e.created != v.Created || e.sum != sums[i] || e.isOdd() {
			l.news = append(l.news, v)
			continue
		}
		l.known = append(l.known, unchangedVersion{e, v.Revision, v.Leased, sums[i], e.good})
	}
}

// keep copies keys and values into memory of their own: one piece for all of them, since they go together.
func keep(versions []Version) {
	size := 0
	for _, v := range versions {
		size += len(v.Key) + len(v.Value)
	}
	if size == 0 {
		return
	}
	room := make([]byte, 0, size)
	put := func(text []byte) []byte {
		from := len(room)
		room = append(room, text...)
		return room[from:len(room):len(room)]
	}
	for i, v := range versions {
		versions[i].Key, versions[i].Value = put(v.Key), put(v.Value)
	}
}

// AddHolders adds what a key says that elects endpoints, or all keys below one that ends with a slash; nothing, if there is none.
func (l *List) AddHolders(key string, says []Holder) {
	l.holders = append(l.holders, listed{key, says})
}

// A listed is what a list has of a key that elects endpoints.
type listed struct {
	key  string
	says []Holder
}

// Wait returns when what was added has been decoded. The caller of Add calls it before the list is merged or dropped.
func (l *List) Wait() { l.decoder.wait() }

// Len is the number of keys in the list.
func (l *List) Len() int { return len(l.news) + len(l.known) }

// News are the versions that the state did not know when they came.
func (l *List) News() []Version { return l.news }

// A decoder decodes pages on all processors: before the first state is in force nobody else
// needs them. (Later there are clients, and the few values that have changed are decoded one by one.)
// Nil decodes nothing.
type decoder struct {
	how   decode.Decoder
	pages [][]decoding
	work  sync.WaitGroup
}

func (d *decoder) add(page []Version) {
	if d == nil {
		return
	}
	decoded := make([]decoding, len(page))
	d.pages = append(d.pages, decoded)
	d.work.Go(func() {
		for i, v := range page {
			decoded[i] = decodeValue(d.how, string(v.Key), v.Value, v.Err)
		}
	})
}

func (d *decoder) wait() {
	if d != nil {
		d.work.Wait()
	}
}

// all is what the pages say, one for one; nil where nothing was decoded.
func (d *decoder) all() []decoding {
	if d == nil {
		return nil
	}
	d.work.Wait()
	return slices.Concat(d.pages...)
}

// useless reports whether there are values and none of them can be used.
func useless(decoded []decoding) bool {
	return len(decoded) > 0 && !slices.ContainsFunc(decoded, func(d decoding) bool { return d.err == nil })
}
