package remote

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/internal/lograte"
)

func TestMain(m *testing.M) { recordstest.Main(m) }

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A file that is being replaced, or was replaced by something useless, changes nothing but the log.
func TestSuccessorsOfPEMFilesAreUsedOnceTheyAreWhole(t *testing.T) {
	one, other := etcdtest.NewCA(t), etcdtest.NewCA(t)
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	firstCert, firstKey := one.Issue(t, "first")
	secondCert, secondKey := one.Issue(t, "second")
	write(t, ca, read(t, one.File))
	write(t, cert, read(t, firstCert))
	write(t, key, read(t, firstKey))
	roots, err := NewRoots(Text{Path: ca})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := NewPair(Text{Path: cert}, Text{Path: key})
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		shown, err := pair.Show(nil)
		if err != nil {
			t.Fatal(err)
		}
		return shown.Leaf.Subject.CommonName
	}
	before := roots.Pool()
	log := recordstest.LogSince(t)
	write(t, ca, read(t, other.File)[:100])
	write(t, cert, read(t, secondCert)) // its key is still the first one's
	for range 3 {
		if !roots.Pool().Equal(before) || name() != "first" {
			t.Errorf("authorities as before: %v, certificate %s; want those from before", roots.Pool().Equal(before), name())
		}
	}
	if got := log(); strings.Count(got, "using the one from before") != 2 || !strings.Contains(got, fmt.Sprintf("CA file %q holds a PEM block that is not whole", ca)) ||
		!strings.Contains(got, fmt.Sprintf("client certificate %q: ", cert)) {
		t.Errorf("the log reads:\n%s", got)
	}
	write(t, ca, read(t, other.File))
	write(t, key, read(t, secondKey))
	if roots.Pool().Equal(before) || name() != "second" {
		t.Errorf("authorities as before: %v, certificate %s; want the successors", roots.Pool().Equal(before), name())
	}
}

// Without one of the authorities, servers that it vouches for could not be reached.
func TestAHalfWrittenBundleIsNotUsed(t *testing.T) {
	one, other := etcdtest.NewCA(t), etcdtest.NewCA(t)
	path := filepath.Join(t.TempDir(), "bundle")
	first, second := read(t, one.File), read(t, other.File)
	write(t, path, slices.Concat(first, second))
	roots, err := NewRoots(Text{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	before := roots.Pool()
	begin := bytes.Index(second, []byte("\n")) + 1
	for what, text := range map[string][]byte{
		"a block without its end":            slices.Concat(first, second[:len(second)-40]),
		"a block of one line":                slices.Concat(first, second[:begin]),
		"half a line":                        slices.Concat(first, second[:10]),
		"a block in the middle":              slices.Concat(second[:len(second)/2], []byte("\n"), first),
		"a block with letters of no meaning": slices.Concat(first, second[:begin], []byte("!!!\n"), second[begin:]),
	} {
		t.Run(what, func(t *testing.T) {
			write(t, path, text)
			roots.warnings = lograte.Lasting[struct{}](1)
			log := recordstest.LogSince(t)
			if !roots.Pool().Equal(before) {
				t.Error("it is used")
			}
			if got := log(); !strings.Contains(got, "using the one from before") || !strings.Contains(got, fmt.Sprintf("CA file %q holds a ", path)) {
				t.Errorf("the log reads:\n%s", got)
			}
			if _, err := NewRoots(Text{Path: path}); err == nil {
				t.Error("it is used at the start")
			}
		})
	}
}

// Bundles of distributions and of administrators have more than certificates.
func TestABundleMayHaveTextAndOtherBlocks(t *testing.T) {
	one, other := etcdtest.NewCA(t), etcdtest.NewCA(t)
	path := filepath.Join(t.TempDir(), "bundle")
	text := slices.Concat([]byte("# An Authority, until 2030\n-- \n"), read(t, one.File), []byte("\nName: Other\r\n=====\n"),
		pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("junk")}), bytes.ReplaceAll(read(t, other.File), []byte("\n"), []byte("\r\n")),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Friendly": "x"}, Bytes: []byte("junk")}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("junk")}), []byte("the end"))
	write(t, path, text)
	roots, err := NewRoots(Text{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	want := x509.NewCertPool()
	want.AppendCertsFromPEM(slices.Concat(read(t, one.File), read(t, other.File)))
	if !roots.Pool().Equal(want) {
		t.Error("the bundle has other authorities than its two certificates")
	}
}

func TestNothingNeedsNoFiles(t *testing.T) {
	roots, err := NewRoots()
	if err != nil || roots.Pool() != nil {
		t.Errorf("%v, %v; want the system's roots", roots, err)
	}
	if pair, err := NewPair(Text{}, Text{}); pair != nil || err != nil {
		t.Errorf("%v, %v; want no certificate", pair, err)
	}
}

func TestFilesAreReadUpToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large\n")
	write(t, path, bytes.Repeat([]byte("secret"), maxFile/6+1))
	_, err := Text{Path: path}.Read()
	if want := fmt.Sprintf("%q: larger than 1048576 bytes", path); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	write(t, path, bytes.Repeat([]byte("x"), maxFile))
	if text, err := (Text{Path: path}).Read(); len(text) != maxFile || err != nil {
		t.Errorf("%d bytes, %v; want all", len(text), err)
	}
}

func TestDurationsThatAreNotGivenHaveADefault(t *testing.T) {
	var unset time.Duration
	given, negative := time.Minute, -time.Second
	err := SetDefaults(Duration{Name: "one", Value: &unset, Default: time.Hour}, Duration{Name: "two", Value: &given, Default: time.Hour})
	if err != nil || unset != time.Hour || given != time.Minute {
		t.Errorf("%v, %v, %v; want an hour and a minute", unset, given, err)
	}
	if err := SetDefaults(Duration{Name: "three", Value: &negative}); err == nil || err.Error() != "negative three -1s" {
		t.Errorf("%v; want an error", err)
	}
}

func TestAFailureKeepsItsCauseAndItsError(t *testing.T) {
	type cause int
	type other int
	inner := errors.New("no route")
	err := fmt.Errorf("list: %w", Because(cause(3), inner))
	if c, ok := CauseOf[cause](err); c != 3 || !ok || !errors.Is(err, inner) || err.Error() != "list: no route" {
		t.Errorf("%v, %v, %v", c, ok, err)
	}
	if _, ok := CauseOf[other](err); ok {
		t.Error("a cause of another source was found")
	}
}
