package statefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/internal/privatedir"
	"kubeproxy/registry"
)

// The names in the directory.
const (
	name      = "kube-proxy.state"
	temporary = ".*.tmp" // is added to the name of a file that is being written
	written   = "kube-proxy.*.tmp"
	bad       = ".bad" // is added to the name of a file that cannot be used
	old       = ".old" // and to that of one that is too old
)

// maxSize bounds what is read: ten thousand services of ten endpoints take 5 MB.
const maxSize = 1 << 30

// abandoned is the age of a temporary file whose writer was killed. A younger one may belong to a process that runs: two share the
// directory while one takes over from the other.
const abandoned = time.Minute

// rewrite is how often a state that does not change is written again, for its age to be known.
const rewrite = time.Hour

// aheadBy is how far the clock may have been put back since a state was written.
const aheadBy = 5 * time.Minute

// A Config says where the file is, and how often it is written.
type Config struct {
	Dir    string        // made if it is missing; its parent has to be there
	Period time.Duration // the shortest time between two writes
	MaxAge time.Duration // of a state that is served; an older one is set aside
	Node   registry.Node // that has read the records: where endpoints are is told from there
}

// A File keeps the merged state on disk. It is a handler of a config.Broadcaster.
type File struct {
	cfg     Config
	changed chan struct{}             // capacity 1: the state is another than the one on disk
	failing lograte.Limiter[struct{}] // lines about writes that fail; errors differ by the name of the temporary file

	mu        sync.Mutex // guards the fields below
	known     bool       // a batch has come: the first holds everything there is
	services  map[registry.Name]*registry.Service
	endpoints map[registry.Name]*registry.Endpoints
}

// Open checks the directory, and removes what a killed process left half-written, once it is a minute old.
func Open(cfg Config) (*File, error) {
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := privatedir.Check(cfg.Dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if match, _ := filepath.Match(written, e.Name()); !match { // the pattern is well-formed
			continue
		}
		if err := removeAbandoned(filepath.Join(cfg.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return &File{
		cfg:       cfg,
		changed:   make(chan struct{}, 1),
		failing:   lograte.Limiter[struct{}]{Lines: 1, Last: time.Hour},
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.Name]*registry.Endpoints),
	}, nil
}

func removeAbandoned(path string) error {
	info, err := os.Lstat(path)
	if err != nil || time.Since(info.ModTime()) < abandoned {
		return err
	}
	return os.Remove(path)
}

// Dir is the directory, which is this user's alone.
func (f *File) Dir() string { return f.cfg.Dir }

// Path is that of the file.
func (f *File) Path() string { return filepath.Join(f.cfg.Dir, name) }

// OnUpdate implements config.Handler. It touches no disk.
func (f *File) OnUpdate(b registry.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
	fold(f.services, b.Services)
	fold(f.endpoints, b.Endpoints)
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func fold[T any](state, batch map[registry.Name]*T) {
	for name, value := range batch {
		if value == nil {
			delete(state, name)
		} else {
			state[name] = value
		}
	}
}

// Run writes the state when it has changed, at most once in a period, until ctx ends, and then a last time. It asks current for when
// the state was last known to be what the sources hold. A zero time stands for a state that no source has said: it is not written.
// Before the first batch nothing is written, whatever current says: the state is not empty, it is only not known yet.
func (f *File) Run(ctx context.Context, current func() time.Time) {
	pace := time.NewTicker(f.cfg.Period)
	defer pace.Stop()
	changed, last := false, time.Now()
	for running := true; running; {
		select {
		case <-pace.C:
		case <-ctx.Done():
			running = false
		}
		select {
		case <-f.changed:
			changed = true
		default:
		}
		at := current()
		if at.IsZero() || !f.isKnown() || !changed && (running && time.Since(last) < rewrite) {
			continue
		}
		if err := f.save(at); err != nil {
			if note, ok := f.failing.Allow(struct{}{}); ok {
				glog.Errorf("cannot save the state: %v; trying again every %v%s", err, f.cfg.Period, note)
			}
			continue
		}
		changed, last = false, time.Now()
	}
}

func (f *File) isKnown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// state returns what is to be written.
func (f *File) state() *state {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &state{f.cfg.Node, slices.Collect(maps.Values(f.services)), slices.Collect(maps.Values(f.endpoints))}
}

// save replaces the file by the present state.
func (f *File) save(current time.Time) error {
	return Replace(f.Path(), func(to io.Writer) error { return write(to, current, f.state()) })
}

// Replace replaces a file of the directory, or makes it with mode 0600: at each moment there is the old one or the new one, also after a power cut.
func Replace(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	to, err := os.CreateTemp(dir, filepath.Base(path)+temporary) // with mode 0600
	if err != nil {
		return err
	}
	err = write(to)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return syncDir(dir)
}

// Load returns the state of the file as a SET, and when it was last known to be what the sources held. It returns false if there is no
// file that can be used, and says so in the log.
func (f *File) Load() (set registry.Update, current time.Time, ok bool) {
	text, err := readAll(f.Path())
	if errors.Is(err, fs.ErrNotExist) {
		glog.Warningf("no state was saved in %s", f.cfg.Dir)
		return set, current, false
	}
	if err != nil {
		glog.Errorf("the saved state cannot be read: %v", err)
		return set, current, false
	}
	h, set, err := read(text)
	if err != nil {
		f.setAside(bad, fmt.Sprintf("it cannot be used: %v", err))
		return set, current, false
	}
	if IsAhead(h.Current) {
		glog.Warningf("the saved state was last known to be true %s, and this machine's clock is behind that: how old it is is not known, and it is served at any age",
			h.Current.UTC().Format(time.RFC3339))
	}
	if age := time.Since(h.Current); age > f.cfg.MaxAge {
		f.setAside(old, fmt.Sprintf("it was last known to be true %v ago, and may be at most %v old", age.Round(time.Second), f.cfg.MaxAge))
		return set, current, false
	}
	if h.Node != f.cfg.Node {
		forgetPlaces(set.Endpoints)
	}
	forgetAsked(&set)
	set.Received = time.Now()
	return set, h.Current, true
}

// IsAhead reports whether a state was last known to be true at a time that this machine's clock is far from reaching. Then its age is not known: the clock is
// behind, as that of a machine that has none of its own and has not been told the time yet.
func IsAhead(current time.Time) bool { return time.Until(current) > aheadBy }

// forgetAsked removes the endpoints of services that have a primary asked while etcd is away: nobody has asked this one.
func forgetAsked(set *registry.Update) {
	asks := make(map[registry.Name]bool)
	for _, c := range set.Services {
		asks[c.Name] = c.Value.Terms().Patroni.AsksStale()
	}
	for i, c := range set.Endpoints {
		if asks[c.Name] {
			set.Endpoints[i].Value = &registry.Endpoints{Name: c.Name}
		}
	}
}

// forgetPlaces removes where endpoints are, which another node has told, or the same one in another zone. Which stand by is the same on all.
func forgetPlaces(all []registry.Change[registry.Endpoints]) {
	for _, c := range all {
		for i := range c.Value.ByPort {
			p := &c.Value.ByPort[i]
			p.Places = p.Places.Only(registry.Backup)
		}
	}
}

// setAside renames the file, so that it is neither used nor overwritten.
func (f *File) setAside(suffix, why string) {
	glog.Warningf("the saved state is set aside as %s: %s", f.Path()+suffix, why)
	if err := os.Rename(f.Path(), f.Path()+suffix); err != nil {
		glog.Errorf("cannot set the saved state aside: %v", err)
	}
}

func readAll(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxSize)
	}
	return os.ReadFile(path)
}
