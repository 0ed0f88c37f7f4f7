package decode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kubeproxy/registry"
)

const rangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"

// nestedWith is a v1 service with a list of source ranges and the annotation, either of which may
// be left out by giving "".
func nestedWith(list, annotation string) string {
	var metadata, spec string
	if annotation != "" {
		metadata = fmt.Sprintf(`"annotations":{%q:%s}`, rangesAnnotation, annotation)
	}
	if list != "" {
		spec = `,"loadBalancerSourceRanges":` + list
	}
	return `{"apiVersion":"v1","metadata":{` + metadata + `},"spec":{"port":80` + spec + `}}`
}

func TestSourceRangesOfAService(t *testing.T) {
	const ignored = "loadBalancerSourceRanges is no field of this version and does not count; the annotation of that name does"
	flatAnnotation := fmt.Sprintf(`"annotations":{%q:"10.0.0.0/8"}`, rangesAnnotation)
	for _, c := range []struct{ name, value, want, warning string }{
		{"none", nestedWith("", ""), "[]", ""},
		{"an empty list", nestedWith("[]", ""), "[]", ""},
		{"null", nestedWith("null", "null"), "[]", ""},
		{"one", nestedWith(`["192.0.2.0/24"]`, ""), "[192.0.2.0/24]", ""},
		{"one address", nestedWith(`["192.0.2.7/32","2001:db8::1/128"]`, ""), "[192.0.2.7/32 2001:db8::1/128]", ""},
		{"everybody", nestedWith(`["0.0.0.0/0","::/0"]`, ""), "[0.0.0.0/0 ::/0]", ""},
		{"masked", nestedWith(`["10.1.2.3/8"]`, ""), "[10.0.0.0/8]", ""},
		{"IPv4 in the spelling of IPv6", nestedWith(`["::ffff:10.1.2.3/104"]`, ""), "[10.0.0.0/8]", ""},
		{"sorted, each once", nestedWith(`["10.2.0.0/16","10.1.0.0/16","::ffff:10.2.0.0/112"]`, ""), "[10.1.0.0/16 10.2.0.0/16]", ""},
		{"blanks around", nestedWith(`[" 10.0.0.0/8 "]`, ""), "[10.0.0.0/8]", ""},
		{"the annotation", nestedWith("", `" 10.0.0.0/8 , 192.0.2.0/24"`), "[10.0.0.0/8 192.0.2.0/24]", ""},
		{"a blank annotation", nestedWith("", `" "`), "[]", ""},
		{"an empty list and the annotation", nestedWith("[]", `"10.0.0.0/8"`), "[10.0.0.0/8]", ""},
		{"the list wins over the annotation", nestedWith(`["10.0.0.0/8"]`, `"rubbish"`), "[10.0.0.0/8]", ""},
		{"the annotation of a flat record", `{"port":80,` + flatAnnotation + `}`, "[10.0.0.0/8]", ""},
		{"the list in a flat record", `{"port":80,"loadBalancerSourceRanges":["10.0.0.0/8"]}`, "[]", ignored},
		{"both in a flat record", `{"port":80,"loadBalancerSourceRanges":7,` + flatAnnotation + `}`, "[10.0.0.0/8]", ignored},
		{"a flat record's annotation in a nested one", `{"apiVersion":"v1","spec":{"port":80},` + flatAnnotation + `}`, "[]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, specKey, c.value)
			if got := fmt.Sprint(r.Service.Terms().SourceRanges); got != c.want || warnings != c.warning {
				t.Errorf("%s\n got %s, warnings %q\nwant %s, %q", c.value, got, warnings, c.want, c.warning)
			}
		})
	}
}

// Were one range left out like an endpoint, its clients would be shut out; were the list left out,
// every client would be let in.
func TestAServiceWithOneBadSourceRangeIsRefused(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "010.0.0.0/8", "10.0.0.0/08",
		"fe80::%eth0/64", "::ffff:0.0.0.0/95", "/8", "localhost/8", "10.0.0.0/8\n10.0.0.0/8", strings.Repeat("1", 10_000)} {
		quoted, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{
			nestedWith(`["192.0.2.0/24",`+string(quoted)+`]`, ""),
			nestedWith("", `"192.0.2.0/24,`+string(quoted[1:])),
		} {
			r, warnings, err := Decode(specKey, []byte(value))
			checkAnswer(t, r, warnings, err)
			if err == nil {
				t.Errorf("%s is accepted: %s", registry.Quote(bad), summary(r))
			}
		}
	}
}

func TestSourceRangesAreBoundedInNumber(t *testing.T) {
	list := func(n int) string {
		ranges := make([]string, n)
		for i := range ranges {
			ranges[i] = fmt.Sprintf(`"10.%d.%d.0/24"`, i/256, i%256)
		}
		return nestedWith("["+strings.Join(ranges, ",")+"]", "")
	}
	if r, _ := decodeTo(t, specKey, list(registry.MaxSourceRanges)); len(r.Service.Terms().SourceRanges) != registry.MaxSourceRanges {
		t.Errorf("%d ranges, want %d", len(r.Service.Terms().SourceRanges), registry.MaxSourceRanges)
	}
	_, _, err := Decode(specKey, []byte(list(registry.MaxSourceRanges+1)))
	if want := "spec.loadBalancerSourceRanges lists 1001 ranges, more than 1000"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
