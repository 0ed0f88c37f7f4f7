package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

func written(t *testing.T, r *Report) (text, object string) {
	t.Helper()
	var a, b bytes.Buffer
	if err := r.WriteText(&a); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return a.String(), b.String()
}

// example is a registry in which something of everything is.
func example() Registry {
	return stored(
		"specs/web", `{"port":8000}`,
		"endpoints/web", `{"endpoints":["10.0.0.1:80","10.0.0.2:80"]}`,
		"specs/shop/cart", `{"apiVersion":"v1","spec":{"ports":[{"port":8000},{"port":8001}],"sessionAffinity":"ClientIP","loadBalancerSourceRanges":["10.0.0.0/8"]}}`,
		"specs/tea", `{"port":"80"}`,
		"specs/db", `{"apiVersion":"v1","spec":{"type":"ExternalName"}}`,
		"locks/x", `held`,
	)
}

func TestAReportAsText(t *testing.T) {
	text, _ := written(t, Examine(example(), Options{}))
	want := `VERDICT  RECORD                             WHAT IT HOLDS, AND WHAT IS WRONG WITH IT
ok       /registry/services/endpoints/web   2 endpoints
ignored  /registry/services/locks/x         neither a service spec, nor endpoints, nor an endpoint slice
ok       /registry/services/specs/db        nothing to serve
error    /registry/services/specs/shop/cart  tcp 8000, tcp 8001, affinity ClientIP for 3h0m0s, from 10.0.0.0/8 only; tcp 8000 belongs to web, whose claim is older; there are no endpoints of this name
error    /registry/services/specs/tea       port holds a string where a whole number is wanted
ok       /registry/services/specs/web       tcp 8000
a test at revision 100: 6 records: 3 ok, 1 ignored, 0 with warnings, 2 with errors; 3 services in force, 2 listeners
`
	want = strings.ReplaceAll(want, "/registry/services/specs/shop/cart  tcp", "/registry/services/specs/shop/cart tcp")
	if diff := cmp.Diff(squeezed(want), squeezed(text)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	lines := strings.Split(text, "\n")
	for _, line := range lines[1:7] { // the columns stand one below the other
		if at := strings.Index(lines[0], "WHAT"); line[at-1] != ' ' || line[at] == ' ' {
			t.Errorf("the last column does not begin at byte %d: %s", at, line)
		}
	}
}

// An API server that encrypts at rest encrypts every value of a kind: one line says what to do, and the JSON still has each key.
func TestEncryptedRecordsShareOneLine(t *testing.T) {
	const secret = "k8s:enc:aescbc:v1:key1:\x00\x9f"
	in := []string{"specs/web", `{"port":80}`, "endpoints/web", `{"endpoints":["10.0.0.1:80"]}`}
	for i := range 50 {
		in = append(in, fmt.Sprintf("specs/a%02d", i), secret)
	}
	r := Examine(stored(in...), Options{})
	text, _ := written(t, r)
	var said []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, Error) {
			said = append(said, squeezed(line))
		}
	}
	want := []string{"error encrypted at rest, for the API server alone: use -master in place of -etcd_servers " +
		"(50 values: /registry/services/specs/a00, /registry/services/specs/a01, /registry/services/specs/a02 and 47 more)\n"}
	if !slices.Equal(said, want) {
		t.Errorf("the errors read\n%q\nwant\n%q", said, want)
	}
	if !r.Failed(false) || r.Summary.Errors != 50 || len(r.Records) != 52 {
		t.Errorf("failed: %t, with %d errors in %d records; want 50 in 52", r.Failed(false), r.Summary.Errors, len(r.Records))
	}
}

func TestALineNamesAFewFindingsAndCountsTheRest(t *testing.T) {
	v := Verdict{Holds: "tcp 80"}
	for _, text := range []string{"a", "b", "c", "d", "e"} {
		v.find(Warning, OddRecord, text)
	}
	if got, want := v.line(), "tcp 80; a; b; c; 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// squeezed is a text with single blanks only.
func squeezed(s string) string {
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

// The document is promised in docs/check.md: what is here may grow, and not change.
func TestAReportAsJSON(t *testing.T) {
	_, text := written(t, Examine(stored("specs/web", `{"port":80}`, "specs/tea", `{"port":80}`, "endpoints/tea", `x`), Options{}))
	want := `{
  "source": "a test",
  "revision": 100,
  "records": [
    {
      "key": "/registry/services/endpoints/tea",
      "kind": "Endpoints",
      "name": "tea",
      "verdict": "error",
      "findings": [
        {
          "level": "error",
          "code": "bad-record",
          "text": "not JSON: begins with \"x\" (YAML and plain text are not accepted)"
        }
      ]
    },
    {
      "key": "/registry/services/specs/tea",
      "kind": "Service",
      "name": "tea",
      "verdict": "error",
      "holds": "tcp 80",
      "findings": [
        {
          "level": "error",
          "code": "port-conflict",
          "text": "tcp 80 belongs to web, whose claim is older"
        },
        {
          "level": "warning",
          "code": "no-endpoints",
          "text": "the record of its endpoints cannot be used"
        }
      ]
    },
    {
      "key": "/registry/services/specs/web",
      "kind": "Service",
      "name": "web",
      "verdict": "warning",
      "holds": "tcp 80",
      "findings": [
        {
          "level": "warning",
          "code": "no-endpoints",
          "text": "there are no endpoints of this name"
        }
      ]
    }
  ],
  "findings": [
    {
      "level": "info",
      "code": "privileged-ports",
      "text": "listeners on ports below 1024, which take root or CAP_NET_BIND_SERVICE: 1 of 1"
    }
  ],
  "summary": {
    "records": 3,
    "services": 2,
    "endpoints": 0,
    "listeners": 1,
    "ok": 0,
    "ignored": 0,
    "warnings": 1,
    "errors": 2
  }
}
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestEveryCodeIsInTheManual(t *testing.T) {
	source, err := os.ReadFile("report.go")
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`Code = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) < 10 {
		t.Fatalf("only the codes %q", codes)
	}
	for _, m := range codes {
		if !strings.Contains(string(manual), "\n| `"+m[1]+"` | ") {
			t.Errorf("docs/check.md has no row for %s", m[1])
		}
	}
	if rows := strings.Count(string(manual), " | error | ") + strings.Count(string(manual), " | warning | ") + strings.Count(string(manual), " | info | "); rows != len(codes) {
		t.Errorf("docs/check.md has %d rows for %d codes", rows, len(codes))
	}
}

func TestAnEmptyReportHasEmptyLists(t *testing.T) {
	_, text := written(t, Examine(Registry{Source: "nowhere"}, Options{}))
	var report struct {
		Records  []any `json:"records"`
		Findings []any `json:"findings"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if report.Records == nil || len(report.Findings) != 1 || strings.Contains(text, "revision") {
		t.Errorf("%s", text)
	}
}

// hostile is a registry of keys and values that are made up to harm the reader of the report.
func hostile() Registry {
	names := []string{
		"\x1b[2J\x1b[31mowned", "a\nok       /registry/services/specs/b  tcp 80", "\r\t\v\x00", "<script>alert(1)</script>", "\xff\xfe", "\u202egnp.exe",
		"\"quoted\"", "{{.}}%s%d%n", "../../etc/passwd", strings.Repeat("long", 300_000), "café", "\u2028", " ", "-rf", "`id`$(id)",
	}
	r := Registry{Source: "a hostile test"}
	add := func(key, value string) {
		r.Records = append(r.Records, Record{Key: registry.Prefix + key, Value: []byte(value)})
	}
	for _, n := range names {
		quoted := fmt.Sprintf("%q", n[:min(len(n), 1000)])
		if b, err := json.Marshal(n); err == nil {
			quoted = string(b)
		}
		for _, at := range []string{"", "default/", n + "/", "a/b/"} {
			add("specs/"+at+n, `{"id":`+quoted+`,"ports":[{"name":`+quoted+`,"port":80},{"name":"x","port":81}],"sessionAffinity":`+quoted+`}`)
			add("endpoints/"+at+n, `{"endpoints":[`+quoted+`,"127.0.0.1:80"],"subsets":[{"addresses":[{"ip":`+quoted+`},{"ip":"127.0.0.1"}],"ports":[{"name":`+quoted+`x,"port":80},{"name":`+quoted+`,"port":81}]}]}`)
			add("endpoints/"+at+n+"2", `{"subsets":[{"addresses":[{"ip":`+quoted+`},{"ip":"127.0.0.1"}],"ports":[{"name":`+quoted+`,"port":80}]}]}`)
			add("specs/"+at+n+"2", `{"ports":[{"name":`+quoted+`,"port":82}]}`)
		}
		add("specs/"+n+"3", n)
		add(n, n)
	}
	return r
}

func TestNothingThatARecordHoldsCanForgeAReport(t *testing.T) {
	r := Examine(hostile(), Options{})
	checkReport(t, r)
	text, object := written(t, r)
	for _, s := range []string{text, object} {
		if !utf8.ValidString(s) || strings.ContainsFunc(strings.ReplaceAll(s, "\n", ""), unprintable) {
			t.Errorf("unprintable: %.2000q", s)
		}
		if limit := 2000 * len(r.Records); len(s) > 3*limit {
			t.Errorf("%d bytes for %d records", len(s), len(r.Records))
		}
	}
	if got, want := strings.Count(text, "\n"), 1+len(r.Records)+len(r.Findings)+1; got != want {
		t.Errorf("%d lines for %d records; want %d", got, len(r.Records), want)
	}
	if strings.Contains(object, "<script>") {
		t.Error("markup in JSON as it is")
	}
	var back Report
	if err := json.Unmarshal([]byte(object), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*r, back); diff != "" {
		t.Errorf("the JSON says something else (-want +got):\n%.2000s", diff)
	}
	for _, v := range back.Records { // keys as they are begin with a slash, quoted ones with a quotation mark
		if !strings.HasPrefix(v.Key, registry.Prefix) && !strings.HasPrefix(v.Key, `"`+registry.Prefix) {
			t.Errorf("key %.200s", v.Key)
		}
	}
}
