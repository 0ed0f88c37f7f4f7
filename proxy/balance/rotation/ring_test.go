package rotation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/registry"
)

// hashes are those of n endpoints.
func hashes(n int) (hs []uint64) {
	for i := range n {
		hs = append(hs, endpointHash(registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)}))
	}
	return hs
}

// The index must not change what a search through all points would find.
func TestAClientBelongsToTheFirstPointAtOrAfterItsHash(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 10, 1000, 1025, 70000, 200000} {
		r := newRing(hashes(n), nil)
		if !slices.IsSorted(r.points) {
			t.Fatalf("%d positions: the points are not sorted", n)
		}
		for range 2000 {
			client := random.Uint64()
			want, _ := slices.BinarySearch(r.points, client&^(1<<positionBits-1))
			if got := r.find(client); got != want {
				t.Fatalf("%d positions: client %x belongs to point %d; want %d", n, client, got, want)
			}
		}
		for _, client := range []uint64{0, 1<<64 - 1} {
			if at := r.at(r.find(client)); at < 0 || at >= n {
				t.Errorf("%d positions: client %x is given position %d", n, client, at)
			}
		}
		if len(r.points) > max(maxPoints, n) {
			t.Errorf("%d positions have %d points", n, len(r.points))
		}
	}
}

// Nodes of different builds must agree, so these values are for ever.
func TestHashesAreTheSameInEveryBuild(t *testing.T) {
	mapped := netip.MustParseAddr("::ffff:192.0.2.1")
	if clientHash(mapped) != clientHash(mapped.Unmap()) {
		t.Error("an IPv4 address has two hashes")
	}
	host := registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "web-1.example"}
	got := fmt.Sprintf("%x %x %x %x", clientHash(mapped), clientHash(netip.MustParseAddr("2001:db8::1")), hashes(2)[1], endpointHash(host))
	if want := "d21f2ca35c221d8d 4de897d954fd23d5 4afeb18b0afd4d0a 4ec11ff64bd3245a"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func BenchmarkNewRing(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		hs := hashes(n)
		b.Run(fmt.Sprint("positions=", n), func(b *testing.B) {
			for b.Loop() {
				newRing(hs, nil)
			}
		})
	}
}

// Weights give clients in proportion, and one that changes moves only clients to or from its position.
func TestWeightsOnARing(t *testing.T) {
	const clients = 50_000
	random := rand.New(rand.NewPCG(11, 12))
	hs := hashes(4)
	before, after := newRing(hs, []int{1, 2, 0, 1}), newRing(hs, []int{1, 2, 0, 3})
	times := make([]int, len(hs))
	for range clients {
		client := random.Uint64()
		was, is := before.at(before.find(client)), after.at(after.find(client))
		times[is]++
		if was != is && is != 3 {
			t.Fatalf("a client moved from position %d to %d", was, is)
		}
	}
	for i, w := range []int{1, 2, 0, 3} {
		if want := clients * w / 6; times[i] < want*8/10 || times[i] > want*12/10 {
			t.Errorf("position %d has %d clients; want about %d", i, times[i], want)
		}
	}
}
