package ownersocket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyOurUserAndRootAreTrusted(t *testing.T) {
	for uid, trusted := range map[int]bool{os.Geteuid(): true, 0: true, 12345: false} {
		if err := (Peer{UID: uid}).Distrust(); (err == nil) != trusted {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestASocketIsItsOwnersAndThatOfTheLastWhoListened: the one before does not remove it.
func TestASocketIsItsOwnersAndThatOfTheLastWhoListened(t *testing.T) {
	path := filepath.Join(directory(t), "socket")
	first, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	second, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	first.withdraw() // it has looked a moment too early
	first.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := PeerOf(conn.(*net.UnixConn))
	if err != nil || peer.UID != os.Geteuid() || peer.PID != os.Getpid() {
		t.Errorf("the peer is %+v, %v", peer, err)
	}
	second.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the last one leaves the file: %v", err)
	}
}

func TestAPlaceWhereOthersCouldReplaceTheSocketIsRefused(t *testing.T) {
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loose := filepath.Join(dir, "loose")
	if err := errors.Join(os.Mkdir(loose, 0o700), os.Chmod(loose, 0o777)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"relative":                         "absolute",
		"/" + strings.Repeat("x", maxPath): "longer than",
		file:                               "is not a socket",
		filepath.Join(loose, "socket"):     "other users may write",
	} {
		if _, err := Listen("unix", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want %q", path, err, want)
		}
	}
}
