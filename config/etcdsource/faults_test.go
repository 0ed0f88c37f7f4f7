package etcdsource_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/registry"
)

// What is done to etcd, to its data and to the way there while the writer writes. Where the data
// themselves are exchanged the writer stands still, because what was being written at that moment
// could not be known afterwards; everywhere else it writes on, and is hit in the middle.

// compact forgets the history up to some recent revision, sometimes all of it.
func (m *model) compact() {
	m.t.Helper()
	revision := m.history.Head() - max(0, m.random.Int64N(60)-20)
	_, err := m.writer.Client.Compact(m.t.Context(), revision)
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) && !errors.Is(err, rpctypes.ErrFutureRev) {
		m.t.Fatalf("compact at %d: %v", revision, err)
	}
}

// kill ends etcd without warning, in the middle of a write.
func (m *model) kill() {
	m.etcd.Kill()
	m.etcd.Start(m.t)
}

// restart stops etcd in good order. Its data are put aside: [model.restore] goes back to them. They
// end with a value that does not decode, on a key that will soon have a good one again.
func (m *model) restart() {
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	if m.random.IntN(6) > 0 { // else etcd waits for the source's watch to end, and gives up after 5 s
		m.line.refuse()
		defer m.line.open()
		m.line.cut()
	}
	m.writer.Commit(m.t.Context(), []truth.Op{{Key: truth.SettledKey, Value: "{"}})
	m.etcd.Stop()
	e := m.history.Newest()
	m.save(m.copyOf(m.etcd.DataDir()), e)
	m.etcd.Start(m.t)
}

// pause stops the process: its connections live on, and get no answer.
func (m *model) pause() {
	m.etcd.Pause()
	time.Sleep(time.Duration(m.random.Int64N(int64(1500 * time.Millisecond))))
	m.etcd.Resume()
}

// hold lets some of the source's connections fall silent while the registry changes, and then go on
// as if nothing had been, or break.
func (m *model) hold() {
	release := m.line.hold(m.random)
	defer release()
	for range m.random.IntN(4) {
		m.await(1 + m.random.IntN(30))
		m.source.Resync()
	}
	if m.random.IntN(2) == 0 {
		m.compact()
	}
	if m.random.IntN(3) == 0 {
		m.line.cut()
	}
}

// flood writes more than the network takes while the source's connections are held. The watch drops
// out of etcd's queue; what it missed comes later, in a few large responses whose headers speak of a
// later revision than their events.
func (m *model) flood() {
	m.line.refuse() // else the source finds out soon that its watch is behind, and gives it up
	defer m.line.open()
	release := sync.OnceFunc(m.line.hold(nil))
	defer release()
	m.writer.Gate.Lock()
	for range 8 { // fills what lies between: the watch has this key in view, though its value is not needed
		m.writer.Commit(m.t.Context(), []truth.Op{{Key: registry.Prefix + "nodes/a", Value: strings.Repeat("x", 1<<20)}})
	}
	m.writer.Gate.Unlock()
	m.await(150 + m.random.IntN(150)) // fills etcd's queue, which holds 128 responses
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	revision := m.writer.Commit(m.t.Context(), []truth.Op{m.settled()})
	for _, key := range truth.OutsideKeys {
		m.writer.Commit(m.t.Context(), []truth.Op{{Key: key, Value: "busy"}})
	}
	release()
	m.line.open()
	m.reach(revision)
}

// outage keeps the source away while the registry changes, until what it would have gone on from is
// compacted.
func (m *model) outage() {
	m.line.refuse()
	defer m.line.open()
	m.line.cut()
	m.await(1 + m.random.IntN(100))
	if m.random.IntN(2) == 0 {
		m.compact()
	}
}

// restore brings back data that were put aside: an older revision of this era, or another era.
func (m *model) restore() {
	if len(m.saved) == 0 || m.random.IntN(4) > 0 {
		m.restart()
		m.await(1 + m.random.IntN(60))
		m.settle()
		m.restoreTo(m.saved[len(m.saved)-1])
		return
	}
	m.restoreTo(pick(m.random, m.saved))
}

func (m *model) restoreTo(saved savedData) {
	m.t.Helper()
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	m.etcd.Kill()
	m.drop(m.etcd.SwapDataDir(m.copyOf(saved.dir)))
	m.writer.Forget()
	m.history.Add(truth.NewEra(saved.era, saved.at))
	m.etcd.Start(m.t)
}

// wipe loses everything: the same etcd, with the same ids, begins at revision 1.
func (m *model) wipe() {
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	m.etcd.Kill()
	m.drop(m.etcd.SwapDataDir(m.t.TempDir()))
	m.writer.Forget()
	m.history.Add(truth.NewEra(nil, 0))
	m.etcd.Start(m.t)
}

// twin is the wipe that hides itself. While the source cannot look, a second data directory is made
// with the same flags and filled with the same transactions, revision by revision, but with other
// values: cluster id, member id and revisions are all the same again. Nothing more is written before
// the source has seen it: that would only make the deception easier to see through.
func (m *model) twin() {
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	m.settleAlone() // so that there is something to mistake it for
	m.line.refuse()
	m.exchangeTwins(0)
	m.line.open()
	m.settleAlone()
}

// busyTwin is a twin that does not stand still: when the source sees it, it is a little younger or
// older than what it is taken for, and it goes on being written to.
func (m *model) busyTwin() {
	m.line.refuse()
	defer m.line.open()
	m.writer.Gate.Lock()
	m.exchangeTwins(m.random.IntN(20))
	m.writer.Gate.Unlock()
	m.await(m.random.IntN(40))
}

// lateNews is an etcd that dies and comes back as another while some of its last words are still on
// their way. They arrive when the source may already have listed the new one.
func (m *model) lateNews() {
	release := m.line.hold(m.random)
	defer release()
	m.await(1 + m.random.IntN(30))
	pick(m.random, []func(*model){(*model).wipe, (*model).restore, (*model).busyTwin, (*model).busyTwin})(m)
	m.await(1 + m.random.IntN(60))
}

// exchangeTwins makes a twin that lacks the last few transactions, and has etcd start on it. The
// caller holds the gate.
func (m *model) exchangeTwins(fewer int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	first := m.headerOfEtcd(ctx)
	old := m.history.Newest()
	m.etcd.Kill()
	m.save(m.etcd.SwapDataDir(m.t.TempDir()), old)
	m.etcd.Start(m.t)
	e := truth.NewEra(nil, 0)
	log := old.Log()
	for _, tx := range log[:max(0, len(log)-fewer)] {
		ops := slices.Clone(tx.Ops)
		for i, o := range ops {
			switch {
			case o.Key == truth.SettledKey: // at least this one is never the same
				ops[i] = m.settled()
			case !o.Remove && m.random.IntN(2) == 0:
				ops[i] = m.writer.Put(o.Key)
			}
		}
		revision, err := m.writer.Replay(ctx, ops)
		if err != nil {
			m.t.Fatal(err)
		}
		if revision != tx.Revision {
			m.t.Fatalf("the twin is none: transaction %d became %d", tx.Revision, revision)
		}
		e.Commit(tx.Revision, ops)
	}
	second := m.headerOfEtcd(ctx)
	if first.ClusterId != second.ClusterId || first.MemberId != second.MemberId {
		m.t.Fatalf("the twin is none: cluster and member are %x and %x; they were %x and %x",
			second.ClusterId, second.MemberId, first.ClusterId, first.MemberId)
	}
	m.writer.Forget()
	m.history.Add(e)
}

func (m *model) headerOfEtcd(ctx context.Context) *etcdserverpb.ResponseHeader {
	m.t.Helper()
	resp, err := m.writer.Client.Get(ctx, truth.SerialKey)
	if err != nil {
		m.t.Fatal(err)
	}
	return resp.Header
}

// save keeps a data directory that ends with the newest revision of e, and forgets the oldest of
// those that were kept: they are large.
func (m *model) save(dir string, e *truth.Era) {
	m.t.Helper()
	m.saved = append(m.saved, savedData{dir, e, e.Head()})
	if len(m.saved) > 3 {
		m.drop(m.saved[0].dir)
		m.saved = m.saved[1:]
	}
}

func (m *model) drop(dir string) {
	m.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) copyOf(dir string) string {
	m.t.Helper()
	c := m.t.TempDir()
	if err := os.CopyFS(c, os.DirFS(dir)); err != nil {
		m.t.Fatal(err)
	}
	return c
}
