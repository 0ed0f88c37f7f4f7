package decode_test

import (
	"fmt"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// Two records as a master of v0.4 writes them. A service and its endpoints meet in a name and the
// name of a port, which is empty here.
func Example() {
	for _, record := range []struct{ key, value string }{
		{"/registry/services/specs/frontend", `{"kind":"Service","id":"frontend","apiVersion":"v1beta1","port":9998,"protocol":"TCP"}`},
		{"/registry/services/endpoints/frontend", `{"kind":"Endpoints","id":"frontend","apiVersion":"v1beta1","endpoints":["10.244.1.5:80","10.244.2.7:80",":80"]}`},
		{"/registry/services/specs/broken", `{"kind":"Service","id":"broken","apiVersion":"v1beta1","port":"9998"}`},
	} {
		r, warnings, err := decode.Decode(record.key, []byte(record.value))
		if err != nil {
			fmt.Printf("record %s: %v\n", registry.Quote(record.key), err)
			continue
		}
		for _, w := range warnings {
			fmt.Printf("record %s: %s\n", registry.Quote(record.key), w)
		}
		switch {
		case r.Service != nil:
			for _, p := range r.Service.Ports {
				fmt.Printf("%v listens on %v port %d\n", registry.PortKey{Name: r.Service.Name, Port: p.Name}, p.Protocol, p.Number)
			}
		case r.Endpoints != nil:
			for _, p := range r.Endpoints.ByPort {
				fmt.Printf("%v is answered at %v\n", registry.PortKey{Name: r.Endpoints.Name, Port: p.Port}, p.Addrs)
			}
		}
	}
	// Output:
	// frontend listens on tcp port 9998
	// record "/registry/services/endpoints/frontend": unusable endpoint left out: ":80" (no host)
	// frontend is answered at [10.244.1.5:80 10.244.2.7:80]
	// record "/registry/services/specs/broken": port holds a string where a whole number is wanted
}
