package registry

import "testing"

func TestSlicesAreEqualWhenTheySayTheSame(t *testing.T) {
	base := func(edit func(*EndpointSlice)) *EndpointSlice {
		s := &EndpointSlice{Name{"default", "x-1"}, "x", someAddrs("", "10.0.0.1:1"), someAddrs("", "10.0.0.2:1"), ""}
		edit(s)
		return s
	}
	same := base(func(*EndpointSlice) {})
	if other := base(func(*EndpointSlice) {}); !same.Equal(other) {
		t.Errorf("%v is not equal to %v", same, other)
	}
	var none *EndpointSlice
	if !none.Equal(nil) || same.Equal(nil) || none.Equal(same) {
		t.Error("nil is equal to nil only")
	}
	for what, other := range map[string]*EndpointSlice{
		"name":        base(func(s *EndpointSlice) { s.Name.Name = "x-2" }),
		"service":     base(func(s *EndpointSlice) { s.Service = "y" }),
		"ready":       base(func(s *EndpointSlice) { s.Ready = nil }),
		"terminating": base(func(s *EndpointSlice) { s.Terminating = s.Ready }),
	} {
		if same.Equal(other) {
			t.Errorf("equal in spite of another %s", what)
		}
	}
}
