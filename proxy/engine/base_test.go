package engine

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/registry"
)

// An aSocket is a socket that does nothing.
type aSocket struct{ Socket }

func TestAPortIsOpenedByItsProtocolIfThereIsADescriptor(t *testing.T) {
	var base Base
	base.Init(Config{BindAddress: netip.MustParseAddr("192.0.2.1")}.WithDefaults(), admit.NewOwnPorts(netip.IPv4Unspecified()))
	t.Cleanup(base.Resolver.Close)
	owner := new(atomic.Pointer[Claim])
	var opened []string
	failing := errors.New("the port is taken")
	open := func(name string, err error) Open {
		return func(id registry.ListenerID, by *atomic.Pointer[Claim]) (Socket, error) {
			if by != owner {
				t.Error("the owner is another")
			}
			opened = append(opened, name+" "+base.Cfg.At(id).String())
			return aSocket{}, err
		}
	}
	listen := func(id registry.ListenerID, err error) error {
		_, err = base.ListenBy(id, owner, open("tcp", err), open("udp", err))
		return err
	}
	for _, c := range []struct {
		id        registry.ListenerID
		err       error
		listeners int64
	}{
		{registry.ListenerID{Protocol: registry.TCP, Number: 80}, nil, 1},
		{registry.ListenerID{Protocol: registry.UDP, Number: 53}, nil, 2},
		{registry.ListenerID{Protocol: registry.UDP, Number: 54}, failing, 2},
		{registry.ListenerID{Addr: netip.MustParseAddr("192.0.2.2"), Protocol: registry.UDP, Number: 54}, nil, 3},
	} {
		if err := listen(c.id, c.err); err != c.err || base.Budget.Open.Load() != c.listeners {
			t.Errorf("%v: %v, and listeners have %d descriptors; want %v and %d", c.id, err, base.Budget.Open.Load(), c.err, c.listeners)
		}
	}
	if want := []string{"tcp 192.0.2.1:80", "udp 192.0.2.1:53", "udp 192.0.2.1:54", "udp 192.0.2.2:54"}; !slices.Equal(opened, want) {
		t.Errorf("opened %v; want %v", opened, want)
	}
	for base.Budget.Take(1) {
	}
	if err := listen(registry.ListenerID{Protocol: registry.TCP, Number: 81}, nil); !errors.Is(err, admit.ErrNoDescriptors) || len(opened) != 4 {
		t.Errorf("without a descriptor: %v, %d were opened", err, len(opened))
	}
	if err := listen(registry.ListenerID{Protocol: 7, Number: 81}, nil); err == nil || base.Budget.Open.Load() != 3 {
		t.Errorf("an unknown protocol: %v, and listeners have %d descriptors", err, base.Budget.Open.Load())
	}
}
