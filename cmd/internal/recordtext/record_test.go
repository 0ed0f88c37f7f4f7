package recordtext

import (
	"slices"
	"testing"

	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// TestARefusedValueIsComparedFieldByField: what it may leave out is no difference, however it is written.
func TestARefusedValueIsComparedFieldByField(t *testing.T) {
	name := registry.Name{Namespace: "default", Name: "web"}
	one := &registry.Service{Name: name, Ports: []registry.Port{{Number: 80}}}
	two := &registry.Service{Name: name, Ports: []registry.Port{{Name: "a", Number: 80}, {Name: "b", Protocol: registry.UDP, Number: 81}}}
	for _, c := range []struct {
		service *registry.Service
		value   string
		want    []Field
	}{
		{one, `{"port":0,"selector":{"x":"y"}}`, []Field{{"port", "80", "0", true}}},
		{one, `{"port":80,"protocol":"tcp","sessionAffinity":7}`, []Field{{"port", "80", "80", false}, {"protocol", "tcp", "tcp", false}, {"sessionAffinity", "None", "7", true}}},
		{one, `{"kind":"Service"}`, []Field{{"ports[0].port", "80", "", true}}},
		{two, `{"apiVersion":"v1","spec":{"ports":[{"name":"a","port":80},{"name":"b","port":"x","protocol":"UDP"}],"type":"NodePort"}}`, []Field{
			{"ports[0].name", "a", "a", false}, {"ports[0].port", "80", "80", false},
			{"ports[1].name", "b", "b", false}, {"ports[1].port", "81", "x", true}, {"ports[1].protocol", "udp", "UDP", false}, {"type", "", "NodePort", true},
		}},
		{one, `{"port":`, nil}, {one, `[80]`, nil}, {one, `null`, nil}, {one, ``, nil}, {nil, `{"port":0}`, nil},
	} {
		if got := Compare(config.Rejection{Value: c.value}, c.service).Fields; !slices.Equal(got, c.want) {
			t.Errorf("%s differs by %+v; want %+v", c.value, got, c.want)
		}
	}
}

// What is in force of a service with addresses is written as its record spells it.
func TestAddressesAreInForceAsTheRecordListsThem(t *testing.T) {
	key := registry.SpecsPrefix + "web"
	const listen = `"kube-proxy/listen":"127.0.0.2,node"`
	record, _, err := decode.Decode(key, []byte(`{"id":"web","kind":"Service","apiVersion":"v1beta1","ports":[{"name":"a","port":80},{"name":"b","port":81}],"annotations":{`+listen+`}}`))
	if err != nil || len(record.Service.Ports) != 4 {
		t.Fatalf("%v, %+v", err, record.Service)
	}
	text := Service(record.Service)
	again, _, err := decode.Decode(key, []byte(text))
	if err != nil || !again.Service.Equal(record.Service) {
		t.Errorf("%s is read as %+v, %v", text, again.Service, err)
	}
}
