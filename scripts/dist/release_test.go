package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/openvex/go-vex/pkg/vex"
	"google.golang.org/protobuf/encoding/protojson"
)

// wantError fails the test unless an error holds all words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v; want one that says %q", err, w)
		}
	}
}

// A release is of a clean tree whose commit has one tag of a version, and whose changelog begins with it. What is missing is said before anything is built.
func TestAReleaseIsOfACleanTreeWithOneTagAndItsHeading(t *testing.T) {
	root := t.TempDir()
	git := func(words ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, words...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-11-28T12:00:00Z")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	changelog := filepath.Join(root, "CHANGELOG.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(changelog, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	try := func() (*release, error) {
		r := &release{root: root}
		return r, r.fromTag()
	}
	git("init", "--quiet")
	write("# Changelog\n\n## Unreleased\n")
	git("add", ".")
	git("commit", "--quiet", "--message=one")
	_, err := try()
	wantError(t, err, "has 0 tags of a release, such as v1.2.3")
	for _, tag := range []string{"v1.0", "1.0.0", "v1.0.0-beta", "v1.0.0-rc.0", "v01.0.0"} {
		git("tag", tag)
	}
	_, err = try()
	wantError(t, err, "has 0 tags of a release", `"v1.0.0-beta"`)
	git("tag", "v1.0.0-rc.1")
	_, err = try()
	wantError(t, err, `first heading of CHANGELOG.md must be "## v1.0.0-rc.1"`, `"## Unreleased"`)
	write("# Changelog\n\n## v1.0.0-rc.1\n")
	_, err = try()
	wantError(t, err, "the tree is not what its commit says", "CHANGELOG.md")
	git("commit", "--quiet", "--all", "--message=two")
	_, err = try()
	wantError(t, err, "has 0 tags")
	git("tag", "--force", "v1.0.0-rc.1")
	r, err := try()
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC); r.describe != "v1.0.0-rc.1" || r.version != "1.0.0~rc.1" || r.tree != "clean" || !r.when.Equal(want) || r.commit != git("rev-parse", "HEAD") {
		t.Errorf("the release is %q, %q, %q, of %v and %s", r.describe, r.version, r.tree, r.when, r.commit)
	}
	git("tag", "v1.0.0")
	_, err = try()
	wantError(t, err, "has 2 tags of a release")
}

// lock is the password of a key.
const lock = "correct horse"

// newKey makes a key, and has the environment name nothing but what each case sets.
func newKey(t *testing.T) (public minisign.PublicKey, private minisign.PrivateKey) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{keyEnv, keyFileEnv, keyPasswordEnv} {
		t.Setenv(name, "")
	}
	return public, private
}

// Without a key the error names the variable; whatever is wrong with one, no error holds any of it, nor of its password.
func TestTheKeyOfASignatureComesFromTheEnvironmentAndIsNeverPrinted(t *testing.T) {
	public, private := newKey(t)
	text, err := private.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := minisign.EncryptKey(lock, private)
	if err != nil {
		t.Fatal(err)
	}
	plain, locked := string(text), string(encrypted)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(locked), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want string // of the error; none: it is the key
	}{
		"none":               {nil, "set MINISIGN_KEY_FILE to the file of a minisign key, or MINISIGN_KEY"},
		"text":               {map[string]string{keyEnv: plain}, ""},
		"file and password":  {map[string]string{keyFileEnv: file, keyPasswordEnv: lock}, ""},
		"both":               {map[string]string{keyFileEnv: file, keyEnv: plain}, "both MINISIGN_KEY_FILE and MINISIGN_KEY are set"},
		"no password":        {map[string]string{keyFileEnv: file}, "the key of MINISIGN_KEY_FILE has a password, and MINISIGN_PASSWORD is not set"},
		"another password":   {map[string]string{keyEnv: locked, keyPasswordEnv: "battery staple"}, "MINISIGN_KEY is no minisign key"},
		"half a key":         {map[string]string{keyEnv: plain[:len(plain)/2]}, "MINISIGN_KEY is no minisign key"},
		"a file without one": {map[string]string{keyFileEnv: filepath.Join(file, "none")}, "MINISIGN_KEY_FILE: open "},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			key, err := signingKey()
			if os.Getenv(keyEnv) != "" || os.Getenv(keyPasswordEnv) != "" {
				t.Error("the environment still holds the key or its password")
			}
			if c.want == "" {
				if err != nil || !public.Equal(key.Public()) {
					t.Errorf("%v; want the key", err)
				}
				return
			}
			wantError(t, err, c.want)
			for _, secret := range []string{plain[60:90], locked[60:90], lock, "battery staple"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error holds a secret: %v", err)
				}
			}
		})
	}
}

func TestASignatureIsTheSameEachTimeAndOfThisContentAlone(t *testing.T) {
	public, key := newKey(t)
	signed := func(content string) []byte {
		t.Helper()
		r := &release{out: t.TempDir(), describe: "v1.2.3", commit: "0123456789"}
		if err := os.WriteFile(r.name(sumsName), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.sign(key); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(r.name("SHA256SUMS.minisig"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	one, again, other := signed("a sum\n"), signed("a sum\n"), signed("another\n")
	if !bytes.Equal(one, again) {
		t.Errorf("two signatures of one content:\n%s\n%s", one, again)
	}
	verifies := func(content string, signature []byte) bool {
		r := minisign.NewReader(strings.NewReader(content))
		if _, err := new(bytes.Buffer).ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		return r.Verify(public, signature)
	}
	if !verifies("a sum\n", one) || verifies("a sum\n", other) || verifies("a sum!\n", one) {
		t.Error("a signature has to be of its own content, and of no other")
	}
	if !strings.Contains(string(one), "trusted comment: kube-proxy-classic v1.2.3, commit 0123456789\n") {
		t.Errorf("the comment that is signed does not name the release:\n%s", one)
	}
}

func TestEachStatementNamesAVulnerabilityAProductAndWhatFollows(t *testing.T) {
	if _, err := readStatements(statementsFile); err != nil {
		t.Error(err)
	}
	const product = `"products":[{"@id":"pkg:generic/kube-proxy-classic"}]`
	for text, want := range map[string]string{
		`[]`:           "no statement",
		`[{}]`:         "statement 1 names no vulnerability",
		`[{"vuln":1}]`: "unknown field",
		`[{"vulnerability":{"name":"GO-1"},"status":"fixed"}]`:                                                                                    "GO-1 names no product",
		`[{"vulnerability":{"name":"GO-1"},"status":"fixed","products":[{"@id":"pkg:generic/other"}]}]`:                                           `names the product "pkg:generic/other"`,
		`[{"vulnerability":{"name":"GO-1"},"status":"fine",` + product + `}]`:                                                                     `invalid status value "fine"`,
		`[{"vulnerability":{"name":"GO-1"},"status":"affected",` + product + `}]`:                                                                 "action statement must be set",
		`[{"vulnerability":{"name":"GO-1"},"status":"not_affected",` + product + `}]`:                                                             "either justification or impact statement",
		`[{"vulnerability":{"name":"GO-1"},"status":"fixed",` + product + `},{"vulnerability":{"name":"GO-1"},"status":"fixed",` + product + `}]`: "two statements are about GO-1",
	} {
		_, err := readStatements([]byte(text))
		wantError(t, err, "vex.json", want)
	}
}

func TestTheVEXDocumentIsOfTheVersionOfTheRelease(t *testing.T) {
	r := &release{out: t.TempDir(), version: "1.2.3+a", when: time.Unix(1700000000, 0).UTC()}
	if err := r.vex(); err != nil {
		t.Fatal(err)
	}
	doc, err := vex.Open(r.name("kube-proxy-classic-1.2.3+a.openvex.json"))
	if err != nil {
		t.Fatal(err)
	}
	if doc.Timestamp == nil || !doc.Timestamp.Equal(r.when) || doc.ID == "" || doc.Author == "" || len(doc.Statements) == 0 {
		t.Errorf("the document is incomplete: %+v", doc.Metadata)
	}
	for _, s := range doc.Statements {
		for _, p := range s.Products {
			if !strings.HasSuffix(p.ID, "@1.2.3%2Ba") {
				t.Errorf("a statement about %s is about %s", s.Vulnerability.Name, p.ID)
			}
		}
	}
}

// A finding is explained by a statement that says why it does no harm, or what to do. That it is fixed explains no finding.
func TestAFindingThatNoStatementExplainsIsNamed(t *testing.T) {
	stream := `{"osv":{"id":"GO-1","aliases":["CVE-1"]}} {"osv":{"id":"GO-2"}} {"osv":{"id":"GO-5"}}
		{"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"example.org/m","version":"v1.0.0"}]}}
		{"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"example.org/m","version":"v1.0.0","package":"example.org/m/p","function":"F"}]}}
		{"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"example.org/m","version":"v1.0.0","package":"example.org/m/p"}]}}
		{"finding":{"osv":"GO-2","trace":[{"module":"stdlib","version":"v1.0.0","package":"os"}]}}`
	found, aliases, err := readFindings(strings.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	statement := func(name string, status vex.Status) vex.Statement {
		return vex.Statement{Vulnerability: vex.Vulnerability{Name: vex.VulnerabilityID(name)}, Status: status}
	}
	const first = "GO-1, CVE-1: the programs calls example.org/m/p.F, of example.org/m v1.0.0, fixed in v1.1.0; vex.json says "
	const second = "GO-2: the programs imports what is vulnerable, of stdlib v1.0.0, fixed in no version; vex.json says nothing"
	for name, c := range map[string]struct {
		statements []vex.Statement
		want       []string
	}{
		"nothing is said":      {nil, []string{first + "nothing", second}},
		"it is said of both":   {[]vex.Statement{statement("CVE-1", vex.StatusNotAffected), statement("GO-2", vex.StatusAffected)}, nil},
		"the other is fixed":   {[]vex.Statement{statement("GO-1", vex.StatusFixed), statement("GO-2", vex.StatusAffected)}, []string{first + "fixed"}},
		"it is looked into":    {[]vex.Statement{statement("GO-1", vex.StatusUnderInvestigation)}, []string{first + "under_investigation", second}},
		"of another is spoken": {[]vex.Statement{statement("GO-5", vex.StatusNotAffected)}, []string{first + "nothing", second}},
	} {
		if got := unexplained(found, aliases, c.statements); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, _, err := readFindings(strings.NewReader(`{"finding":`)); err == nil {
		t.Error("half an answer of govulncheck is no error")
	}
}

func TestAModuleWithoutAPermittedLicenseIsNamed(t *testing.T) {
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	all := permitted
	t.Cleanup(func() { permitted = all })
	permitted = []string{"ISC", "MIT"}
	for name, c := range map[string]struct {
		files map[string]string
		want  string // of the error
	}{
		"none":          {map[string]string{"README": "hello"}, "module example.org/m@v1.0.0 has no license file"},
		"its own":       {map[string]string{"LICENSE": "You may look at this on Sundays, and on no other day of the week."}, "module example.org/m@v1.0.0: LICENSE is no license that is known"},
		"another":       {map[string]string{"COPYING.md": string(apache)}, `module example.org/m@v1.0.0: COPYING.md has the license "Apache-2.0", which is not among the permitted ones: ISC, MIT`},
		"only a notice": {map[string]string{"NOTICE": "Apache"}, "has no license file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			m := linked{path: "example.org/m", version: "v1.0.0"}
			if err := m.read(dir, dir); err != nil {
				t.Fatal(err)
			}
			wantError(t, m.classify(), c.want)
		})
	}
}

// The bill of materials of a program names the modules that go version -m reads from it, with their versions, and no others. Its licenses are known,
// and the notices hold the text of each.
func TestTheBillOfMaterialsIsWhatGoVersionSays(t *testing.T) {
	r := &release{root: "../..", out: t.TempDir(), describe: "v1.2.3", version: "1.2.3", commit: "0123456789", tree: "clean", when: time.Unix(1700000000, 0).UTC()}
	stage := t.TempDir()
	for _, target := range []target{kubeProxy("amd64"), schools("amd64")[0]} {
		t.Run(target.name, func(t *testing.T) {
			p, err := r.program(target, stage)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("go", "version", "-m", filepath.Join(stage, target.system, target.arch, target.name)).Output()
			if err != nil {
				t.Fatal(err)
			}
			said := make(map[string]string)
			for line := range strings.Lines(string(out)) {
				f := strings.Fields(line)
				switch {
				case len(f) >= 3 && f[0] == "dep":
					said[f[1]] = f[2]
				case strings.Contains(line, ": go"):
					_, version, _ := strings.Cut(line, ": go")
					said[stdlib] = strings.TrimSpace(version)
				}
			}
			text, err := os.ReadFile(r.name("%s.spdx.json", r.called(target)))
			if err != nil {
				t.Fatal(err)
			}
			var bill struct {
				Packages []struct{ Name, VersionInfo, PrimaryPackagePurpose, LicenseDeclared string }
			}
			if err := json.Unmarshal(text, &bill); err != nil {
				t.Fatal(err)
			}
			listed := make(map[string]string)
			for _, p := range bill.Packages {
				if p.PrimaryPackagePurpose == "LIBRARY" {
					listed[p.Name] = p.VersionInfo
				}
				if p.LicenseDeclared == "" || p.LicenseDeclared == "NOASSERTION" {
					t.Errorf("the license of %s is not known", p.Name)
				}
			}
			if len(said) < 2 || !maps.Equal(said, listed) {
				t.Errorf("go version -m: %v\nthe bill: %v", said, listed)
			}
			papers := p.notices("").content
			for _, m := range p.modules {
				for _, n := range m.notices {
					if !bytes.Contains(papers, bytes.TrimSpace(n.content)) || !bytes.Contains(papers, []byte("\n"+m.path+" "+m.version+": "+m.license+"\n")) {
						t.Errorf("%s does not hold %s of %s", noticesName, n.path, m.path)
					}
				}
			}
		})
	}
}

func TestAProgramWithAnotherModuleThanItsListIsRefused(t *testing.T) {
	r := &release{root: "../..", out: t.TempDir(), version: "1.2.3"}
	stage := t.TempDir()
	target := schools("amd64")[0]
	path, err := r.compile(target, stage)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.modulesOf(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{target: target, modules: all[:len(all)-1]}
	wantError(t, r.bill(p, path), "the program holds the module "+all[len(all)-1].path)
	p.modules = append(slices.Clone(all), linked{path: "example.org/m", version: "v1.0.0"})
	wantError(t, r.bill(p, path), "the program does not hold the module example.org/m@v1.0.0")
}

// Provenance names the commit, the toolchain, each module with the checksum of go.sum, and each file with its own; and is the same each time.
func TestProvenanceNamesWhatWasBuiltFromWhat(t *testing.T) {
	r := &release{root: "../..", out: t.TempDir(), describe: "v1.2.3", version: "1.2.3", commit: strings.Repeat("0a", 20), tree: "clean"}
	var err error
	if r.modules, err = r.modulesOf(kubeProxy("amd64")); err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{"b": strings.Repeat("1", 64), "a/c": strings.Repeat("2", 64)}
	write := func() []byte {
		t.Helper()
		if err := r.provenance([]string{"amd64", "arm64"}, "go1.26.10", sums); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(r.name("kube-proxy-classic-1.2.3.intoto.json"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := write()
	if !bytes.Equal(text, write()) {
		t.Error("it differs the second time")
	}
	var s intoto.Statement
	if err := protojson.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	got := make(map[string]string)
	for _, subject := range s.Subject {
		got[subject.Name] = subject.Digest["sha256"]
	}
	if !maps.Equal(got, sums) {
		t.Errorf("it is about %v, want %v", got, sums)
	}
	for _, want := range []string{`"https://slsa.dev/provenance/v1"`, `"refs/tags/v1.2.3"`, `"gitCommit": "` + r.commit + `"`, `"pkg:golang/stdlib@1.26.10"`, `"pkg:golang/github.com/golang/glog@`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("it does not hold %s", want)
		}
	}
	if n := bytes.Count(text, []byte(`"dirHash": "`)); n != len(r.modules)-1 {
		t.Errorf("%d modules have a checksum, want %d", n, len(r.modules)-1)
	}
	r.modules = append(r.modules, linked{path: "example.org/m", version: "v1.0.0"})
	wantError(t, r.provenance(nil, "go1.26.10", sums), "example.org/m v1.0.0")
}
