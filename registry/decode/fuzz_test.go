package decode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// checkDecode holds Decode to the promises of the package for one record.
func checkDecode(t *testing.T, key string, value []byte) {
	r, warnings, err := Decode(key, value)
	checkAnswer(t, r, warnings, err)
	again, warningsAgain, errAgain := Decode(key, value)
	if !reflect.DeepEqual(r, again) || !reflect.DeepEqual(warnings, warningsAgain) || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
		t.Errorf("decoded twice: %v, %q, %v and %v, %q, %v", r, warnings, err, again, warningsAgain, errAgain)
	}
}

// seed adds the fixtures of one kind, small ones first of all: the fuzzer mutates what it is given.
func seed(f *testing.F, prefix string) {
	for _, x := range fixtures(f) {
		if value := x.value(f); strings.HasPrefix(x.Key, prefix) && len(value) < 8<<10 {
			f.Add(value)
		}
	}
}

func FuzzDecodeService(f *testing.F) {
	seed(f, registry.SpecsPrefix)
	f.Fuzz(func(t *testing.T, value []byte) { checkDecode(t, registry.SpecsPrefix+"prod/frontend", value) })
}

func FuzzDecodeEndpoints(f *testing.F) {
	seed(f, registry.EndpointsPrefix)
	f.Fuzz(func(t *testing.T, value []byte) { checkDecode(t, registry.EndpointsPrefix+"frontend", value) })
}

func FuzzDecodeEndpointSlice(f *testing.F) {
	for _, value := range sliceSeeds(f) {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		checkDecode(t, registry.EndpointSlicesPrefix+"prod/frontend-x", value)
	})
}

func FuzzDecodeProtobuf(f *testing.F) {
	for _, c := range capturedBy1_36(f, "protobuf") {
		f.Add(c.value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !isProtobuf(value) {
			value = append([]byte(protobufMagic), value...)
		}
		for _, key := range []string{registry.SpecsPrefix + "prod/frontend", registry.EndpointsPrefix + "frontend", registry.EndpointSlicesPrefix + "prod/frontend-x"} {
			checkDecode(t, key, value)
		}
	})
}

// FuzzProtobufSaysWhatJSONSays: an object decodes to the same record, warnings or error, whichever way it is written.
func FuzzProtobufSaysWhatJSONSays(f *testing.F) {
	for i := range uint64(50) {
		f.Add(i, i, "10.0.0.1")
	}
	f.Add(uint64(1), uint64(2), strings.Repeat("w", 64))
	f.Fuzz(func(t *testing.T, a, b uint64, text string) {
		key, both := randomTwin(rand.New(rand.NewPCG(a, b)), strings.ToValidUTF8(text, "?"))
		for _, decoder := range []Decoder{{}, {NodePorts: true}, {Addresses: AtCluster}, {Addresses: AtBoth}} {
			fromJSON, warningsJSON, errJSON := decoder.Decode(key, both.inJSON(t))
			got, warnings, err := decoder.Decode(key, both.inProtobuf())
			checkAnswer(t, got, warnings, err)
			if !reflect.DeepEqual(got, fromJSON) || !reflect.DeepEqual(warnings, warningsJSON) || fmt.Sprint(err) != fmt.Sprint(errJSON) {
				t.Fatalf("%s %s\nJSON: %s, warnings %q, error %v\nprotobuf: %s, warnings %q, error %v", key, both.inJSON(t),
					describe(fromJSON), warningsJSON, errJSON, describe(got), warnings, err)
			}
		}
	})
}

// describe is summary, of no record too.
func describe(r Record) string {
	if r == (Record{}) {
		return "nothing"
	}
	return summary(r)
}

// openedByJSON is what read and identity do, done by package json alone.
func openedByJSON(value []byte) (b body, flat, nested func() (registry.Name, error), err error) {
	var fields struct {
		Kind        string          `json:"kind"`
		APIVersion  string          `json:"apiVersion"`
		ID          json.RawMessage `json:"id"`
		Namespace   json.RawMessage `json:"namespace"`
		Metadata    json.RawMessage `json:"metadata"`
		Spec        json.RawMessage `json:"spec"`
		Endpoints   json.RawMessage `json:"endpoints"`
		Annotations json.RawMessage `json:"annotations"`
		Labels      json.RawMessage `json:"labels"`
		Subsets     json.RawMessage `json:"subsets"`
		AddressType json.RawMessage `json:"addressType"`
		Ports       json.RawMessage `json:"ports"`
		Status      json.RawMessage `json:"status"`
	}
	err = unmarshal("", value, &fields)
	b = body{value, false, nil, nil, fields.Kind, fields.APIVersion, fields.ID, fields.Namespace, fields.Metadata,
		fields.Spec, fields.Endpoints, fields.Annotations, fields.Labels, fields.Subsets, fields.AddressType, fields.Ports, fields.Status}
	flat = func() (n registry.Name, err error) {
		err = cmp.Or(b.field("id", b.ID, &n.Name), b.field("namespace", b.Namespace, &n.Namespace))
		return n, err
	}
	nested = func() (registry.Name, error) {
		var metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		}
		err := b.field("metadata", b.Metadata, &metadata)
		return registry.Name{Namespace: metadata.Namespace, Name: metadata.Name}, err
	}
	return b, flat, nested, err
}

// FuzzOpen: a record is opened in place as package json would have opened it, errors included.
func FuzzOpen(f *testing.F) {
	seed(f, registry.SpecsPrefix)
	seed(f, registry.EndpointsPrefix)
	for _, value := range []string{
		`{}`, "\n{ }\t", " { \"id\" : \"a\" ,\r\n\"endpoints\" : [ 1 , {\"]\":2} ] , \"metadata\" : { } } ",
		`{"KIND":"a","apiversion":"b","Id":1,"metaData":{"NAME":"c","nameSpace":"d"}}`,
		`{"\u212aind":"kelvin","ſpec":"long s","annotation\u017f":1,"\u0069d":"a","metadata":{"na\u006de":"b"}}`,
		"{\"\u212aind\":\"kelvin\",\"\xffid\":1,\"id\xff\":2,\"kind\":\"a\xff\",\"metadata\":{\"name\":\"\xc3\"}}",
		`{"i\"d":1,"id\\":2,"\\":{"kind":3},"":4,"kind":"\"}","id":"\\"}`,
		`{"kind":"a","kind":"b","id":1,"ID":2,"metadata":{"name":"a"},"metadata":{"name":"b","Name":"c"}}`,
		`{"kind":"a","kind":null,"id":1,"id":null,"metadata":{"name":"a","name":null,"namespace":null}}`,
		`{"kind":null,"apiVersion":null,"id":null,"namespace":null,"metadata":null,"endpoints":null,"subsets":null}`,
		`{"apiVersion":[1],"kind":{"kind":"a"},"id":[],"namespace":5,"metadata":[{"name":"a"}]}`,
		`{"kind":1e400,"id":true,"metadata":"a"}`, `{"kind":"a","kind":false,"metadata":{"namespace":[],"name":{}}}`,
		`{"kind":5,"id":"a"`, `{"kind":5} {}`, `{"kind":"a",}`, `{"kind":"\x"}`, "{\"kind\":\"a\nb\"}", `{"metadata":5,"id":{},"namespace":1}`,
		`{"spec":{"ports":[{"port":1},{"port":2}]},"kind":"a","annotations":{"kind":"b","a":[{"id":1}]},"subsets":[[],{}]}`,
		`{"a":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `}`, `{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if checkObject(value) != nil {
			return
		}
		want, flat, nested, wantErr := openedByJSON(value)
		var got body
		if err := got.read(value); fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%q: error %v; want %v", value, err, wantErr)
		}
		if wantErr != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is opened as\n%v; want\n%v", value, got, want)
		}
		for _, identity := range []func() (registry.Name, error){flat, nested} {
			want, wantErr := identity()
			name, err := got.identity()
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && name != want {
				t.Errorf("%q, nested %v: identity %q, error %v; want %q, error %v", value, got.nested, name, err, want, wantErr)
			}
			got.nested = true
		}
	})
}
