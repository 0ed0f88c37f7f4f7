//go:build linux

package peers

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"kubeproxy/scripts/internal/load"
)

func TestDropsAreThoseOfTheProcesssSockets(t *testing.T) {
	const text = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 111 2 0000000000000000 5
  2: 0100007F:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 222 2 0000000000000000 7
  3: 0100007F:0037 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 333 2 0000000000000000 11
`
	if got, err := parseDrops(text, map[string]bool{"111": true, "333": true}); got != 16 || err != nil {
		t.Errorf("got %d, %v; want 16", got, err)
	}
	deaf, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := deaf.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	before, err := kernelDrops([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (load.Burst{Clients: 10, Each: 100}).Fire([]netip.AddrPort{deaf.LocalAddr().(*net.UDPAddr).AddrPort()}); err != nil {
		t.Fatal(err)
	}
	after, err := kernelDrops([]int{os.Getpid()})
	if dropped := after - before; err != nil || dropped < 900 || dropped > 1000 {
		t.Errorf("of 1000 datagrams to a socket that nobody reads the kernel dropped %.0f (%v)", dropped, err)
	}
}
