package connlog

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func TestMain(m *testing.M) {
	if err := flag.Set("logtostderr", "true"); err != nil { // glog's: a log file would look like a leak
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func ending() traffic.Ending {
	return traffic.Ending{
		Listener: registry.ListenerID{Protocol: registry.TCP, Number: 8000},
		Service:  registry.PortKey{Name: registry.Name{Namespace: "default", Name: "web"}, Port: "http"},
		Client:   netip.MustParseAddrPort("[::ffff:10.0.0.9]:51544"),
		Via:      netip.MustParseAddrPort("10.0.0.2:6000"),
		TLVs:     "authority=db.example",
		Endpoint: registry.Addr{IP: netip.MustParseAddrPort("10.1.2.3:8080")},
		Local:    netip.MustParseAddrPort("10.1.2.1:40001"),
		Began:    time.Date(2024, 2, 29, 23, 59, 58, 900e6, time.FixedZone("", 3600)),
		Duration: 1250 * time.Millisecond,
		Dialled:  1500 * time.Microsecond,
		Attempts: 2,
		Tried:    "10.1.2.4:80 (connection refused)",
		Sent:     12,
		Received: 1 << 40,
		Reason:   traffic.ClientFinished,
	}
}

func TestALineSaysAllOfAnEnding(t *testing.T) {
	e := ending()
	const want = `{"time":"2024-02-29T23:00:00.150Z","event":"end","node":"node-1","revision":57,"service":"default/web","port_name":"http","port":8000,"address":"","protocol":"tcp",` +
		`"client":"10.0.0.9:51544","via":"10.0.0.2:6000","tlvs":"authority=db.example","endpoint":"10.1.2.3:8080","local":"10.1.2.1:40001","attempts":2,"tried":"10.1.2.4:80 (connection refused)","sent":12,"received":1099511627776,` +
		`"duration":1.250000,"dial":0.001500,"reason":"client_finished"}` + "\n"
	if diff := cmp.Diff(want, string((&entry{Ending: e, revision: 57}).appendLine(nil, "node-1"))); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	const start = `{"time":"2024-02-29T23:00:00.150Z","event":"start",`
	if line := string((&entry{Ending: e, start: true}).appendLine(nil, "node-1")); !strings.HasPrefix(line, start) || !strings.HasSuffix(line, `,"reason":""}`+"\n") {
		t.Errorf("the line of a start is %s", line)
	}
}

// TestTheManualShowsALineWithAllFields: the sample of metrics.md has them in the order of the log.
func TestTheManualShowsALineWithAllFields(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, found := strings.Cut(string(page), "\n## The connection log\n")
	if !found {
		t.Fatal("metrics.md has no section of the connection log")
	}
	sample, _, _ = strings.Cut(sample, "\n\nOne line")
	field := regexp.MustCompile(`"(\w+)":`)
	e := ending()
	want := field.FindAllString(string((&entry{Ending: e, revision: 57}).appendLine(nil, "node-1")), -1)
	if diff := cmp.Diff(want, field.FindAllString(sample, -1)); diff != "" {
		t.Errorf("the log has (-), metrics.md shows (+):\n%s", diff)
	}
}

// TestWhatStrangersNameIsHarmlessInALine: a key of etcd may hold any bytes.
func TestWhatStrangersNameIsHarmlessInALine(t *testing.T) {
	for _, name := range []string{
		"a\nb", "a\"b\\", "<script>alert(1)</script>&amp;", "\x1b[31mred", "del\x7f", "c1\u009b31m", "line\u2028end",
		"bidi\u202etxt", "not utf\xff\xfe", "\U000e0041tag", "żółć", strings.Repeat("é\n", 2000),
	} {
		e := ending()
		e.Service.Name.Name, e.Service.Port = name, name
		e.Endpoint = registry.Addr{Host: "host.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)}
		line := string((&entry{Ending: e, revision: 57}).appendLine(nil, "node-1"))
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%q: %v in %s", name, err, line)
			continue
		}
		want := strings.ToValidUTF8(name, "\ufffd\ufffd") // both bytes of the one example
		if fields["service"] != "default/"+want || fields["port_name"] != want {
			t.Errorf("%q reads back as %q and %q", name, fields["service"], fields["port_name"])
		}
		if fields["endpoint"] != "host.example:80" {
			t.Errorf("the endpoint reads back as %q", fields["endpoint"])
		}
		if plain := strings.TrimSuffix(line, "\n"); strings.ContainsAny(plain, "\n\x1b\x7f<>&\u009b\u2028\u202e") {
			t.Errorf("%q is in the line as it is: %s", name, plain)
		}
	}
}

// run runs the log until the test, or what is returned, ends it.
func run(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func open(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// TestEverythingRecordedIsWrittenBeforeRunReturns: what was recorded before the end is in the file
// after it, and the file was there before.
func TestEverythingRecordedIsWrittenBeforeRunReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("from yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, path)
	stop := run(t, l)
	for range 5000 {
		l.Record(ending(), 57)
	}
	stop()
	if got := lines(t, path); got != 5001 || l.Written() != 5000 || l.Dropped() != 0 {
		t.Errorf("%d lines in the file, %d written, %d dropped; want 5001, 5000 and 0", got, l.Written(), l.Dropped())
	}
}

func TestTheFileIsForItsOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	run(t, open(t, path))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o137 != 0 {
		t.Errorf("its mode is %v, want 0640 at most", info.Mode())
	}
}

// TestReopenFollowsTheName, as logrotate wants it: lines go to the file that was moved away until Reopen,
// and none is lost.
func TestReopenFollowsTheName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path)
	stop := run(t, l)
	l.Record(ending(), 57)
	proxytest.Eventually(t, func() bool { return l.Written() == 1 }, "the first line is written")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Record(ending(), 57)
	proxytest.Eventually(t, func() bool { return l.Written() == 2 }, "the second line is written")
	l.Reopen()
	proxytest.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, "there is a new file")
	l.Record(ending(), 57)
	stop()
	if old, now := lines(t, path+".1"), lines(t, path); old != 2 || now != 1 {
		t.Errorf("%d lines in the old file and %d in the new one, want 2 and 1", old, now)
	}
}

// TestAFileThatCannotBeReopenedIsKept: its directory is gone.
func TestAFileThatCannotBeReopenedIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, filepath.Join(dir, "log"))
	stop := run(t, l)
	moved := dir + ".old"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	proxytest.Eventually(t, func() bool { return len(l.reopen) == 0 }, "it has tried to reopen")
	l.Record(ending(), 57)
	stop()
	if got := lines(t, filepath.Join(moved, "log")); got != 1 {
		t.Errorf("%d lines in the old file, want 1", got)
	}
}

// TestAFullDiskCostsLinesAndNothingElse: /dev/full is one.
func TestAFullDiskCostsLinesAndNothingElse(t *testing.T) {
	l := open(t, "/dev/full")
	run(t, l)
	for range 10 {
		l.Record(ending(), 57)
	}
	proxytest.Eventually(t, func() bool { return l.Dropped() == 10 }, "all 10 lines are counted as dropped")
	if l.Written() != 0 {
		t.Errorf("%d lines were written to a full disk", l.Written())
	}
}

// stall is a pipe whose reader decides what becomes of it.
func stall(t *testing.T) (l *Log, reader *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	return open(t, path), reader
}

// TestAReaderWhoSleepsDelaysNobody: when the pipe is full and the queue too, lines are counted, and
// once he reads again they flow again, each whole.
func TestAReaderWhoSleepsDelaysNobody(t *testing.T) {
	l, reader := stall(t)
	stop := run(t, l)
	const many = 3 * queued
	for range many { // who waited for the reader would wait for ever
		l.Record(ending(), 57)
	}
	if l.Dropped() == 0 {
		t.Error("nothing was dropped: the pipe is too large for this test")
	}
	read := make(chan int)
	go func() {
		n := 0
		for in := bufio.NewScanner(reader); in.Scan(); n++ {
			if !json.Valid(in.Bytes()) {
				t.Errorf("torn: %s", in.Bytes())
			}
		}
		read <- n
	}()
	stop()
	if n := proxytest.Receive(t, read, "the end of the pipe"); uint64(n) != l.Written() || l.Written()+l.Dropped() != many {
		t.Errorf("%d lines were read, %d written and %d dropped of %d", n, l.Written(), l.Dropped(), many)
	}
}

// TestAReaderWhoNeverReadsAgainIsNotWaitedFor: the program has to end.
func TestAReaderWhoNeverReadsAgainIsNotWaitedFor(t *testing.T) {
	l, reader := stall(t)
	stop := run(t, l)
	recorded := uint64(0)
	for l.Dropped() == 0 {
		l.Record(ending(), 57)
		recorded++
	}
	stop()
	reader.Close() // which frees what is stuck, here where no process ends
	proxytest.Eventually(t, func() bool { return l.Written()+l.Dropped() == recorded }, "the end of what was stuck")
}

func TestAReaderWhoLeavesIsNoEndOfTheLog(t *testing.T) {
	l, reader := stall(t)
	run(t, l)
	reader.Close()
	l.Record(ending(), 57)
	proxytest.Eventually(t, func() bool { return l.Dropped() == 1 }, "the line is dropped")
	again, err := os.OpenFile(l.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	l.Record(ending(), 57)
	proxytest.Eventually(t, func() bool { return l.Written() == 1 }, "the next reader is written to")
}

// A scrap is a writer that takes a few bytes, and then fails until it is mended.
type scrap struct {
	strings.Builder
	room int
}

func (s *scrap) Write(b []byte) (int, error) {
	n := min(len(b), s.room)
	s.room -= n
	s.Builder.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (s *scrap) Close() error { return nil }

// TestATornLineHarmsNoOther: the disk filled up in the middle of a line.
func TestATornLineHarmsNoOther(t *testing.T) {
	e := ending()
	line := string((&entry{Ending: e, revision: 57}).appendLine(nil, "node-1"))
	out := &scrap{room: len(line) + 10}
	l := &Log{out: out}
	l.write([]byte(line+line+line), 3)
	if l.Written() != 1 || l.Dropped() != 2 {
		t.Errorf("%d written and %d dropped, want 1 and 2", l.Written(), l.Dropped())
	}
	l.write([]byte(line), 1) // still full
	out.room = 1 << 20
	l.write([]byte(line), 1)
	if got, want := out.String(), line+line[:10]+"\n"+line; got != want {
		t.Errorf("the file holds\n%swant\n%s", got, want)
	}
	if l.Written() != 2 || l.Dropped() != 3 {
		t.Errorf("%d written and %d dropped, want 2 and 3", l.Written(), l.Dropped())
	}
}

// TestALineAfterATornOneIsWhole, whoever has left the torn one there: a process that was killed, or this one before it reopened the file.
func TestALineAfterATornOneIsWhole(t *testing.T) {
	const torn = `{"time":"2024-02-`
	line := string((&entry{Ending: ending(), revision: 57}).appendLine(nil, "node-1"))
	holds := func(t *testing.T, path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the file holds %q, %v; want %q", got, err, want)
		}
	}
	t.Run("of a process before", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(line+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, path)
		defer l.out.Close()
		l.write([]byte(line), 1)
		holds(t, path, line+torn+"\n"+line)
		l.change()
		l.write([]byte(line), 1)
		holds(t, path, line+torn+"\n"+line+line)
	})
	t.Run("of a process that was writing", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		predecessor := open(t, path)
		defer predecessor.out.Close()
		predecessor.write([]byte(line[:len(torn)]), 0)
		l := open(t, path)
		defer l.out.Close()
		predecessor.write([]byte(line[len(torn):]), 1)
		l.write([]byte(line), 1)
		holds(t, path, line+line)
	})
	t.Run("of this process", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		l := open(t, path)
		defer func() { l.out.Close() }()
		tear := func() {
			if _, err := io.WriteString(l.out, torn); err != nil {
				t.Fatal(err)
			}
			l.torn = true
		}
		tear()
		l.change()
		l.write([]byte(line), 1)
		holds(t, path, torn+"\n"+line)
		tear()
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		l.change()
		l.write([]byte(line), 1)
		holds(t, path, line)
	})
	t.Run("in a pipe", func(t *testing.T) {
		l, _ := stall(t)
		defer func() { l.out.Close() }()
		l.torn = true
		if l.change(); !l.torn {
			t.Error("the next line is glued to it")
		}
	})
}

func TestAPathThatCannotBeOpenedIsAnError(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "no", "such", "dir"), ""); err == nil {
		t.Error("opened")
	}
}

// BenchmarkRecord is what a connection pays at its end.
func BenchmarkRecord(b *testing.B) {
	l := &Log{entries: make(chan entry, queued)}
	go func() {
		for range l.entries {
		}
	}()
	defer close(l.entries)
	e := ending()
	b.ReportAllocs()
	for b.Loop() {
		l.Record(e, 57)
	}
}

// BenchmarkLine is what the writer pays for it.
func BenchmarkLine(b *testing.B) {
	l := &Log{entries: make(chan entry, queued), out: nowhere{io.Discard}}
	buf := make([]byte, 0, chunk+4096)
	e := ending()
	b.ReportAllocs()
	for b.Loop() {
		l.write(l.gather(buf, entry{Ending: e}))
	}
}

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }
