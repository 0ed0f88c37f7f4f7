package statefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/golang/glog"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/registry/patroni"
)

var kills = flag.Int("kills", 30, "how often TestAKilledWriterLeavesAWholeState kills the writer")

// writerDir has the test binary write states into a directory until it is killed.
const writerDir = "STATEFILE_WRITER_DIR"

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(writerDir); dir != "" {
		_ = flag.Set("logtostderr", "true") // glog's
		writeForEver(dir)
	}
	recordstest.Main(m)
}

func open(t testing.TB, dir string) *File {
	t.Helper()
	f, err := Open(Config{Dir: dir, Period: time.Second, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func batch(services []*registry.Service, endpoints []*registry.Endpoints) registry.Batch {
	b := registry.Batch{Services: make(map[registry.Name]*registry.Service), Endpoints: make(map[registry.Name]*registry.Endpoints)}
	for _, s := range services {
		b.Services[s.Name] = s
	}
	for _, e := range endpoints {
		b.Endpoints[e.Name] = e
	}
	return b
}

// example is a state with every field, and names that are no text.
func example() registry.Batch {
	web := registry.Name{Namespace: "default", Name: "web"}
	odd := registry.Name{Namespace: "\"quoted\"", Name: "\xff\n<&>\u2028"}
	addr := func(s string) registry.Addr {
		a, err := registry.ParseAddr(s)
		if err != nil {
			panic(err)
		}
		return a
	}
	return batch(
		[]*registry.Service{
			{Name: web, Rank: 2, Created: 7, Ports: []registry.Port{{Name: "http", Protocol: registry.TCP, Number: 80}, {Name: "dns", Protocol: registry.UDP, Number: 80}, {Addr: netip.MustParseAddr("127.0.0.2"), Number: 80, Open: true}, {Addr: netip.IPv6Loopback(), Number: 80, Local: true}}, Since: []int64{7, 9, 10, 11},
				Asked: &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: 3 * time.Hour,
					SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
					Limits:       registry.Limits{Connections: 9, PerClient: registry.NoLimit},
					Timeouts:     registry.Timeouts{Connect: time.Second, Idle: time.Minute, UDP: time.Hour},
					Removal:      registry.Removal{Rule: registry.RemovalClose, After: time.Minute}}},
			{Name: odd, Created: -1, Asked: &registry.Terms{Checks: registry.Check{Wanted: registry.CheckOn, Send: "\xe3\x00", Expect: "\xff"}}},
		},
		[]*registry.Endpoints{
			{Name: web, Weights: "10.0.0.1=5,db.example=0", ByPort: []registry.PortAddrs{
				{Port: "", Addrs: registry.NewAddrs(addr("10.0.0.2:80"), addr("10.0.0.1:80"), addr("[fe80::1%eth0]:81"), addr("db.example:82"))},
				{Port: "\xfe", Addrs: registry.NewAddrs(addr("10.0.0.2:80")), Places: "\xc2"},
			}},
			{Name: odd},
		})
}

func asBatch(u registry.Update) registry.Batch {
	b := batch(nil, nil)
	for _, c := range u.Services {
		b.Services[c.Name] = c.Value
	}
	for _, c := range u.Endpoints {
		b.Endpoints[c.Name] = c.Value
	}
	return b
}

func wantState(t *testing.T, want registry.Batch, got registry.Update) {
	t.Helper()
	opts := cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b registry.Addrs) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
	if diff := cmp.Diff(want, asBatch(got), opts); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	dir := t.TempDir()
	f := open(t, filepath.Join(dir, "made"))
	f.OnUpdate(example())
	at := time.Now().Add(-time.Minute)
	if err := f.save(at); err != nil {
		t.Fatal(err)
	}
	got, current, ok := open(t, filepath.Join(dir, "made")).Load()
	if !ok || !current.Equal(at) || !got.Set {
		t.Fatalf("loaded: %v, of %v, SET %v; want true, %v, true", ok, current, got.Set, at)
	}
	wantState(t, example(), got)
	info, err := os.Stat(f.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(f.Path())); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory %v, %v; want 0700", info.Mode(), err)
	}
}

func TestWhereEndpointsAreIsNotLoadedForAnotherZone(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	f.OnUpdate(example())
	if err := f.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	f.cfg.Node.Zone = "another"
	got, _, ok := f.Load()
	if !ok {
		t.Fatal("nothing was loaded")
	}
	backups := 0
	for _, c := range got.Endpoints {
		for _, p := range c.Value.ByPort {
			if p.Places == registry.Places([]byte{byte(registry.Backup)}) {
				backups++
			}
			if p.Places.Only(^registry.Backup) != "" {
				t.Errorf("the endpoints of %v are at %v", c.Name, []byte(p.Places))
			}
		}
	}
	if backups != 1 {
		t.Errorf("%d endpoints stand by; want the one of the record", backups)
	}
}

// TestAPrimaryThatNobodyHasAskedIsNotLoaded: the saved state does not say where to ask whether it still is the primary. Of replicas, and of a service that
// does not ask, all endpoints are loaded.
func TestAPrimaryThatNobodyHasAskedIsNotLoaded(t *testing.T) {
	f := open(t, t.TempDir())
	for name, terms := range map[string]patroni.Terms{
		"asks": {Scope: "pg", Ask: true}, "keeps": {Scope: "pg"}, "reads": {Scope: "pg", Ask: true, Replicas: true}, "awaits": {Scope: "pg", Unpromoted: true},
	} {
		of := registry.Name{Namespace: "default", Name: name}
		service := &registry.Service{Name: of}
		service.SetTerms(registry.Terms{HolderKey: "/service/pg/", Patroni: terms})
		web := example().Endpoints[registry.Name{Namespace: "default", Name: "web"}]
		f.OnUpdate(batch([]*registry.Service{service}, []*registry.Endpoints{{Name: of, ByPort: web.ByPort}}))
	}
	if err := f.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	got, _, ok := f.Load()
	if !ok {
		t.Fatal("nothing was loaded")
	}
	for name, e := range asBatch(got).Endpoints {
		if has := e != nil && len(e.ByPort) > 0; has != (name.Name != "asks") {
			t.Errorf("%v has endpoints: %v", name, has)
		}
	}
}

// What a record may ask for, the state file keeps: a term that it refused would lose the whole state.
func TestEveryTermThatARecordMayNameIsSavedAndLoaded(t *testing.T) {
	var annotations []string
	for _, b := range registry.Balances() {
		annotations = append(annotations, `"haproxy.org/load-balance":"`+b.String()+`"`)
	}
	for _, version := range []string{"proxy", "proxy-v1", "proxy-v2"} {
		annotations = append(annotations, `"haproxy.org/send-proxy-protocol":"`+version+`"`)
	}
	for _, wish := range []string{"true", "false"} {
		annotations = append(annotations, `"haproxy.org/check":"`+wish+`"`)
	}
	for _, a := range []string{"max-connections=1", "max-connections-per-client=none", "connect-timeout=1s", "idle-timeout=none", "udp-timeout=5m0s", "on-removal=close-after=3s"} {
		name, value, _ := strings.Cut(a, "=")
		annotations = append(annotations, fmt.Sprintf(`"kube-proxy/%s":%q`, name, value))
	}
	annotations = append(annotations, `"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica","kube-proxy/patroni-lag":"16MB","kube-proxy/patroni-fallback":"none"`)
	for _, a := range annotations {
		t.Run(a, func(t *testing.T) {
			record, _, err := decode.Decode("/registry/services/specs/web", []byte(`{"port":80,"sessionAffinity":"ClientIP","annotations":{`+a+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			if record.Service.Asked == nil {
				t.Fatal("the record asks for nothing")
			}
			f := open(t, t.TempDir())
			f.OnUpdate(batch([]*registry.Service{record.Service}, nil))
			if err := f.save(time.Now()); err != nil {
				t.Fatal(err)
			}
			got, _, ok := f.Load()
			if !ok {
				t.Fatal("the state file is refused")
			}
			wantState(t, batch([]*registry.Service{record.Service}, nil), got)
		})
	}
}

// A record spells any byte of a datagram as %XX, and JSON replaces bytes that are no UTF-8: one such record must not lose the state of the others. An earlier
// release, which does not know the fields for them, reads the file as well, and does not check the UDP ports of that service.
func TestABinaryDatagramOfACheckIsSavedAndLoaded(t *testing.T) {
	var services []*registry.Service
	datagrams := map[string][2]string{"web": {}, "text": {"p\u00efng", "pong"}, "ntp": {"\xe3\x00", "\xff"}, "half": {"ping", "\xff"}, "big": {strings.Repeat("\xff", 100), ""}}
	for name, d := range datagrams {
		s := &registry.Service{Name: registry.Name{Namespace: "default", Name: name}, Ports: []registry.Port{{Protocol: registry.UDP, Number: 123}}, Since: []int64{0}}
		if d[0] != "" {
			s.SetTerms(registry.Terms{Checks: registry.Check{Wanted: registry.CheckOn, Send: d[0], Expect: d[1]}})
		}
		services = append(services, s)
	}
	f := open(t, t.TempDir())
	f.OnUpdate(batch(services, nil))
	if err := f.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	got, _, ok := f.Load()
	if !ok {
		t.Fatal("the state file is refused")
	}
	wantState(t, batch(services, nil), got)

	body, err := verify(text)
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.ReplaceAll(body, []byte(`"check_`), []byte(`"later_`))
	if err := os.WriteFile(f.Path(), fmt.Appendf(body, "{\"sha256\":\"%x\"}\n", sha256.Sum256(body)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, ok = f.Load(); !ok {
		t.Fatal("an earlier release refuses the state file")
	}
	for _, c := range got.Services {
		want := datagrams[c.Name.Name]
		if !utf8.ValidString(want[0] + want[1]) {
			want = [2]string{}
		}
		if is := c.Value.Terms().Checks; is.Send != want[0] || is.Expect != want[1] {
			t.Errorf("an earlier release has %v send %q and expect %q; want %q", c.Name, is.Send, is.Expect, want)
		}
	}
}

func TestARemovedObjectIsNotSaved(t *testing.T) {
	f := open(t, t.TempDir())
	f.OnUpdate(example())
	gone := example()
	for name := range gone.Services {
		gone.Services[name] = nil
	}
	clear(gone.Endpoints)
	f.OnUpdate(gone)
	if err := f.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	got, _, _ := f.Load()
	wantState(t, batch(nil, []*registry.Endpoints{example().Endpoints[registry.Name{Namespace: "default", Name: "web"}], example().Endpoints[registry.Name{Namespace: "\"quoted\"", Name: "\xff\n<&>\u2028"}]}), got)
}

func TestAFileThatCannotBeUsedIsSetAside(t *testing.T) {
	var whole bytes.Buffer
	if err := write(&whole, time.Now(), &state{}); err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	w := newWriter(&other)
	_ = w.lines.Encode(header{Format: "kube-proxy state 1", Current: time.Now()})
	_ = w.finish()
	sealed := func(lines ...string) string {
		var out bytes.Buffer
		w := newWriter(&out)
		_ = w.lines.Encode(header{Format: format, Current: time.Now(), Services: len(lines)})
		for _, l := range lines {
			fmt.Fprintln(w.out, l)
			fmt.Fprintln(w.sum, l)
		}
		_ = w.finish()
		return out.String()
	}
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             whole.String()[:whole.Len()-10],
		"cut at a line":   strings.SplitAfter(whole.String(), "\n")[0],
		"other byte":      strings.Replace(whole.String(), "20", "21", 1),
		"other format":    other.String(),
		"port 0":          sealed(`{"service":{"namespace":"a","name":"b","created":1,"ports":[{"protocol":"tcp","port":0,"since":1}]}}`),
		"same port twice": sealed(`{"service":{"namespace":"a","name":"b","created":1,"ports":[{"protocol":"tcp","port":1,"since":1},{"protocol":"tcp","port":1,"since":1}]}}`),
		"sctp":            sealed(`{"service":{"namespace":"a","name":"b","created":1,"ports":[{"protocol":"sctp","port":1,"since":1}]}}`),
		"twice":           sealed(`{"service":{"namespace":"a","name":"b","created":1}}`, `{"service":{"namespace":"a","name":"b","created":1}}`),
		"bad address":     sealed(`{"endpoints":{"namespace":"a","name":"b","by_port":[{"addresses":["0.0.0.0:1"]}]}}`),
		"nothing":         sealed(`{}`),
		"unknown field":   sealed(`{"services":{}}`),
		"bad range":       sealed(`{"service":{"namespace":"a","name":"b","created":1,"terms":{"SourceRanges":["10.0.0.1/8"]}}}`),
		"bad affinity":    sealed(`{"service":{"namespace":"a","name":"b","created":1,"terms":{"Affinity":1}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, t.TempDir())
			if err := os.WriteFile(f.Path(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := f.Load(); ok {
				t.Error("it was loaded")
			}
			if kept, err := os.ReadFile(f.Path() + bad); err != nil || string(kept) != text {
				t.Errorf("set aside: %v", err)
			}
			if _, err := os.Stat(f.Path()); err == nil {
				t.Error("it is still there")
			}
		})
	}
}

// A rollback reads what a later release has saved: what it added is ignored, in each kind of line.
func TestFieldsOfALaterReleaseAreIgnored(t *testing.T) {
	f := open(t, t.TempDir())
	f.OnUpdate(example())
	if err := f.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	body, err := verify(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, added := range [][2]string{{`{"format":`, `{"later":{"a":[1]},"format":`}, {`{"service":{`, `{"later":1,"service":{"later":"x",`}, {`"terms":{`, `"terms":{"Later":true,`},
		{`"ports":[{`, `"ports":[{"later":1,`}, {`{"endpoints":{`, `{"endpoints":{"later":null,`}, {`"by_port":[{`, `"by_port":[{"later":{},`}} {
		if !bytes.Contains(body, []byte(added[0])) {
			t.Fatalf("the file has no %s", added[0])
		}
		body = bytes.Replace(body, []byte(added[0]), []byte(added[1]), 1)
	}
	text = fmt.Appendf(body, "{\"sha256\":\"%x\"}\n", sha256.Sum256(body))
	if err := os.WriteFile(f.Path(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, ok := f.Load()
	if !ok {
		t.Fatal("the state file is refused")
	}
	wantState(t, example(), got)
}

func TestAStateThatIsTooOldIsSetAside(t *testing.T) {
	f := open(t, t.TempDir())
	for age, want := range map[time.Duration]bool{time.Hour - time.Minute: true, time.Hour + time.Minute: false} {
		if err := f.save(time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		if _, _, ok := f.Load(); ok != want {
			t.Errorf("loaded at an age of %v: %v; want %v", age, ok, want)
		}
	}
	if _, err := os.Stat(f.Path() + old); err != nil {
		t.Error(err)
	}
}

// TestAStateFromTheFutureIsServedWithAWarning: a machine without a clock of its own starts years ago, and the age of the state is not known before it
// has the time. A clock that was put right by a few minutes warns of nothing.
func TestAStateFromTheFutureIsServedWithAWarning(t *testing.T) {
	f := open(t, t.TempDir())
	f.OnUpdate(example())
	for ahead, want := range map[time.Duration]int64{48 * time.Hour: 1, 2 * time.Minute: 0} {
		at := time.Now().Add(ahead)
		if err := f.save(at); err != nil {
			t.Fatal(err)
		}
		before := glog.Stats.Warning.Lines()
		got, current, ok := f.Load()
		if !ok || !current.Equal(at) || IsAhead(current) != (want == 1) {
			t.Errorf("%v ahead: loaded %v, current at %v, ahead: %v", ahead, ok, current, IsAhead(current))
		}
		wantState(t, example(), got)
		if n := glog.Stats.Warning.Lines() - before; n != want {
			t.Errorf("%v ahead: %d warnings; want %d", ahead, n, want)
		}
	}
}

func TestADirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o770, 0o707} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("mode %v: %v; want an error that names the directory", mode, err)
		}
	}
	if _, err := Open(Config{Dir: filepath.Join(t.TempDir(), "not", "there")}); err == nil {
		t.Error("a directory was made whose parent is missing")
	}
}

func TestTheStateIsWrittenOnceAPeriodAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := open(t, dir)
		var said atomic.Bool // a source has
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, func() (current time.Time) {
				if said.Load() {
					current = time.Now()
				}
				return current
			})
		}()
		written := func() (n int) {
			set, _, ok := f.Load()
			if !ok {
				return -1
			}
			return len(set.Services)
		}
		f.OnUpdate(example())
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Hour)
		if n := written(); n != -1 {
			t.Errorf("%d services were written; want none: no source has said them", n)
		}
		said.Store(true)
		pass(time.Second)
		if n := written(); n != 2 {
			t.Errorf("%d services were written within a period; want 2", n)
		}
		web := example().Services[registry.Name{Namespace: "default", Name: "web"}]
		third := *web
		third.Name.Name = "third"
		f.OnUpdate(batch([]*registry.Service{&third}, nil))
		pass(time.Second - time.Millisecond)
		if n := written(); n != 2 {
			t.Errorf("%d services were written before the period was over; want 2", n)
		}
		stop()
		<-done
		if n := written(); n != 3 {
			t.Errorf("%d services were written at the end; want 3", n)
		}
	})
}

// The errors differ by the name of the temporary file, and are one trouble all the same.
func TestHoursWithoutAPlaceToWriteTakeALineAnHour(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		f := open(t, dir)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 6*time.Hour)
		defer stop()
		f.OnUpdate(example())
		f.Run(ctx, time.Now)
	})
	if n := strings.Count(log(), "cannot save the state: "); n < 6 || n > 12 {
		t.Errorf("%d lines:\n%.2000s", n, log())
	}
}

func TestAStateThatIsNotKnownYetReplacesNone(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		before := open(t, dir)
		before.OnUpdate(example())
		ctx, stop := context.WithCancel(t.Context())
		stop()
		before.Run(ctx, time.Now)
		open(t, dir).Run(ctx, time.Now) // it ends before the first batch
		set, _, ok := open(t, dir).Load()
		if !ok {
			t.Fatal("no state was loaded")
		}
		wantState(t, example(), set)
	})
}

func TestAStateThatDoesNotChangeStaysYoung(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := open(t, dir)
		f.OnUpdate(example())
		go f.Run(t.Context(), time.Now)
		time.Sleep(24*time.Hour + time.Minute)
		synctest.Wait()
		_, current, ok := f.Load()
		if age := time.Since(current); !ok || age > rewrite+f.cfg.Period {
			t.Errorf("loaded %v, age %v; want at most %v", ok, age, rewrite)
		}
	})
}

// numbered is a state of which a part would be noticed: n services, and each has the port n.
func numbered(n int) *state {
	s := new(state)
	for i := range n {
		s.services = append(s.services, &registry.Service{Name: registry.Name{Namespace: "default", Name: fmt.Sprint(i)}, Ports: []registry.Port{{Number: uint16(n)}}, Since: []int64{int64(n)}})
	}
	return s
}

func writeForEver(dir string) {
	f, err := Open(Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	for n := 1; ; n = n%500 + 1 {
		s := numbered(n)
		b := batch(s.services, nil)
		clear(f.services)
		f.OnUpdate(b)
		if err := f.save(time.Now()); err != nil {
			panic(err)
		}
		if n == 1 {
			fmt.Println() // the first one is there
		}
	}
}

func TestAKilledWriterLeavesAWholeState(t *testing.T) {
	dir := t.TempDir()
	for range *kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), writerDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // anywhere in a write
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		f := open(t, dir)
		got, _, ok := f.Load()
		if !ok {
			t.Fatal("what the writer left cannot be loaded")
		}
		for _, c := range got.Services {
			if int(c.Value.Ports[0].Number) != len(got.Services) {
				t.Fatalf("a service of another state: port %d among %d services", c.Value.Ports[0].Number, len(got.Services))
			}
		}
	}
}

// TestOnlyAnAbandonedTemporaryFileIsRemoved: a young one may be what a process that runs writes at this moment.
func TestOnlyAnAbandonedTemporaryFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	young, stale := filepath.Join(dir, "kube-proxy.state.1.tmp"), filepath.Join(dir, "kube-proxy.state.2.tmp")
	for path, age := range map[string]time.Duration{young: 0, stale: time.Hour} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if diff := cmp.Diff([]string{young}, left); diff != "" || err != nil {
		t.Errorf("want (-), left (+): %v\n%s", err, diff)
	}
}

func FuzzRead(f *testing.F) {
	var whole bytes.Buffer
	s := &state{}
	for _, v := range example().Services {
		s.services = append(s.services, v)
	}
	for _, v := range example().Endpoints {
		s.endpoints = append(s.endpoints, v)
	}
	if err := write(&whole, time.Now(), s); err != nil {
		f.Fatal(err)
	}
	body, err := verify(whole.Bytes())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 0 && body[len(body)-1] != '\n' {
			body = append(body, '\n')
		}
		var file bytes.Buffer
		w := newWriter(&file)
		_, _ = w.out.Write(body)
		_, _ = w.sum.Write(body)
		_ = w.finish()
		h, u, err := read(file.Bytes())
		if err != nil {
			return
		}
		again := new(state) // whatever is read can be written, and reads the same
		for _, c := range u.Services {
			again.services = append(again.services, c.Value)
		}
		for _, c := range u.Endpoints {
			again.endpoints = append(again.endpoints, c.Value)
		}
		var out bytes.Buffer
		if err := write(&out, h.Current, again); err != nil {
			t.Skip(err) // a time that JSON cannot write
		}
		_, v, err := read(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, asBatch(u), v)
	})
}

func BenchmarkSave10000(b *testing.B) {
	f := open(b, b.TempDir())
	s := new(state)
	addrs := make([]registry.Addr, 10)
	for i := range addrs {
		addrs[i] = registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)}
	}
	for i := range 10000 {
		name := registry.Name{Namespace: "default", Name: fmt.Sprint("service-", i)}
		s.services = append(s.services, &registry.Service{Name: name, Ports: []registry.Port{{Number: uint16(i + 1)}}, Since: []int64{1}})
		s.endpoints = append(s.endpoints, &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs...)}}})
	}
	f.OnUpdate(batch(s.services, s.endpoints))
	b.ReportAllocs()
	for b.Loop() {
		if err := f.save(time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	info, err := os.Stat(f.Path())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size()), "bytes")
}
