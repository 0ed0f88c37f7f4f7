package decode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// FuzzElements: the elements of an array are what package json takes them for.
func FuzzElements(f *testing.F) {
	for _, array := range []string{`[]`, `[ ]`, `[1]`, ` `, `[ "a" , "b,]\"" ,{"c":[1,{"d":"}"}]}, [],[[ ]],null ]`, `["\\",","]`, "[\n\t\"\\u005d\" ]"} {
		f.Add(array)
	}
	f.Fuzz(func(t *testing.T, array string) {
		var want []json.RawMessage
		if !strings.HasPrefix(array, "[") || json.Unmarshal([]byte(array), &want) != nil {
			return
		}
		if got := slices.Collect(elements(array)); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q has the elements %q; want %q", array, got, want)
		}
	})
}

// A long array is decoded a piece at a time. No element is lost or told twice, and none keeps anything of another.
func TestALongArrayIsDecodedAsOneWouldBe(t *testing.T) {
	type element struct {
		A, B *int
		List []string
	}
	texts := []string{`{"a":1}`, `{"b":2,"list":["x","y"]}`, `{}`, `{"list":["z"]}`, `null`}
	var array strings.Builder
	for n := 0; array.Len() < 5*pieceBytes; n++ {
		array.WriteString("," + texts[n%len(texts)] + strings.Repeat(" ", n%7))
	}
	text := "[" + array.String()[1:] + "]"
	var want []element
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := eachOf("list", json.RawMessage(text), func(e *element) error {
		if got, want := spelled(t, e), spelled(t, want[n]); got != want {
			t.Fatalf("element %d is %s; want %s", n, got, want)
		}
		n++
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d elements were decoded, error %v; want %d", n, err, len(want))
	}
}

func spelled(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
