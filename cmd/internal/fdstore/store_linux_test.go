package fdstore

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// A notifySocket is that of a service manager.
type notifySocket struct{ path string }

// newNotifySocket sets the variables of a manager that keeps 2 descriptors. It does not listen yet: what is sent to it fails.
func newNotifySocket(t *testing.T) notifySocket {
	t.Helper()
	n := notifySocket{filepath.Join(t.TempDir(), "notify")}
	t.Setenv("NOTIFY_SOCKET", n.path)
	t.Setenv("FDSTORE", "2")
	return n
}

// listens has the manager listen. messages returns what it has received since the last call.
func (n notifySocket) listens(t *testing.T) (messages func() []string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() (all []string) {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil { // all that is sent is there already
			t.Fatal(err)
		}
		for buf := make([]byte, 4096); ; {
			length, err := conn.Read(buf)
			if err != nil {
				return all
			}
			all = append(all, string(buf[:length]))
		}
	}
}

func stored(id registry.ListenerID) string  { return "FDSTORE=1\nFDPOLL=0\nFDNAME=" + name(id) }
func removed(id registry.ListenerID) string { return "FDSTOREREMOVE=1\nFDNAME=" + name(id) }

func wantMessages(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the manager received %q, want %q", got, want)
	}
}

// socket opens a port of ip. It returns the listening socket as a manager passes it.
func socket(t *testing.T, ip string) (registry.ListenerID, *os.File) {
	t.Helper()
	id := registry.ListenerID{Protocol: registry.TCP, Number: proxytest.FreePort(t)}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), id.Number)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := sockopt.Duplicate(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return id, os.NewFile(uintptr(fd), name(id))
}

// TestASocketThatIsNotUsedIsClosedOnceTheManagerHears, and the others are used meanwhile.
func TestASocketThatIsNotUsedIsClosedOnceTheManagerHears(t *testing.T) {
	n := newNotifySocket(t)
	used, first := socket(t, proxytest.Loopback.String())
	unused, second := socket(t, "127.0.0.2")
	s, err := open([]*os.File{first, second}, proxytest.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	sockets := s.Sockets()
	fd, ok := sockets[used]
	if !ok || len(sockets) != 1 {
		t.Fatalf("the sockets are %v, want that of %v alone", sockets, used)
	}
	defer sockopt.Close(fd)
	if kept, err := s.Keep(used, fd); kept || err == nil {
		t.Errorf("Keep returns %v, %v though the manager does not hear", kept, err)
	}
	if err := s.Forget(used); err == nil {
		t.Error("Forget returns no error though the manager does not hear")
	}
	if err := s.Flush(); err == nil {
		t.Error("Flush returns no error though the manager does not hear")
	}
	messages := n.listens(t)
	if kept, err := s.Keep(used, fd); !kept || err != nil {
		t.Errorf("Keep returns %v, %v", kept, err)
	}
	if err := s.Flush(); err != nil {
		t.Error(err)
	}
	wantMessages(t, messages(), removed(unused), stored(used))
}

// TestTheManagerHasToCloseTheOnlySocketItPassed, also if it does not say how many it keeps: then there is a store.
func TestTheManagerHasToCloseTheOnlySocketItPassed(t *testing.T) {
	n := newNotifySocket(t)
	t.Setenv("FDSTORE", "")
	unused, file := socket(t, "127.0.0.2")
	s, err := open([]*os.File{file}, proxytest.Loopback)
	if s == nil || err != nil {
		t.Fatalf("the store is %v, %v", s, err)
	}
	messages := n.listens(t)
	if err := s.Flush(); err != nil {
		t.Error(err)
	}
	wantMessages(t, messages(), removed(unused))
}

func TestThereIsNoStoreOfAManagerThatKeepsNone(t *testing.T) {
	newNotifySocket(t)
	for text, wantErr := range map[string]bool{"": false, "0": false, "many": true} {
		t.Setenv("FDSTORE", text)
		if s, err := open(nil, proxytest.Loopback); s != nil || (err != nil) != wantErr {
			t.Errorf("FDSTORE=%s: the store is %v, %v", text, s, err)
		}
	}
}

// TestAFullStoreHasRoomOnceASocketIsForgotten. What it did not keep frees no place.
func TestAFullStoreHasRoomOnceASocketIsForgotten(t *testing.T) {
	n := newNotifySocket(t)
	messages := n.listens(t)
	s, err := open(nil, proxytest.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	var ids []registry.ListenerID
	keep := func(i int, want bool) {
		t.Helper()
		if kept, err := s.Keep(ids[i], 0); kept != want || err != nil {
			t.Errorf("Keep(%v) returns %v, %v; want %v", ids[i], kept, err, want)
		}
	}
	forget := func(i int) {
		t.Helper()
		if err := s.Forget(ids[i]); err != nil {
			t.Error(err)
		}
	}
	for i := range 4 {
		ids = append(ids, registry.ListenerID{Protocol: registry.TCP, Number: uint16(80 + i)})
		keep(i, i < 2)
	}
	forget(3)
	keep(2, false)
	keep(0, true) // again
	forget(0)
	keep(2, true)
	keep(0, false)
	wantMessages(t, messages(), stored(ids[0]), stored(ids[1]), removed(ids[3]), stored(ids[0]), removed(ids[0]), stored(ids[2]))
}

// TestWhatAPredecessorGaveTheManagerCounts, until it is forgotten.
func TestWhatAPredecessorGaveTheManagerCounts(t *testing.T) {
	n := newNotifySocket(t)
	messages := n.listens(t)
	s, err := open(nil, proxytest.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	var ids []registry.ListenerID
	for i := range 3 {
		ids = append(ids, registry.ListenerID{Protocol: registry.TCP, Number: uint16(80 + i)})
	}
	s.NoteKept(map[registry.ListenerID]struct{}{ids[0]: {}, ids[1]: {}})
	for _, want := range []bool{false, true} {
		if kept, err := s.Keep(ids[2], 0); kept != want || err != nil {
			t.Errorf("Keep returns %v, %v; want %v", kept, err, want)
		}
		if err := s.Forget(ids[0]); err != nil {
			t.Error(err)
		}
	}
	wantMessages(t, messages(), removed(ids[0]), stored(ids[2]), removed(ids[0]))
}
