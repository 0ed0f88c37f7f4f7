package forwarding

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/nftables"
)

// ErrNoCapability is that the process may not ask.
var ErrNoCapability = errors.New("it takes CAP_NET_ADMIN, as the unit of kube-proxy may give it (AmbientCapabilities=CAP_NET_ADMIN)")

// Missing returns why the node does not forward packets of IPv4, and of IPv6; nil: it does.
func Missing() (no [2]error) { return missingBy("/proc/sys/net", isUp) }

// missingBy is Missing by the settings below a directory. A switch of an interface alone is there for IPv4: a packet that comes in by an
// interface that does not forward is dropped, be it of a client or of an endpoint.
func missingBy(settings string, isUp func(device string) bool) (no [2]error) {
	for f, all := range [2]string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if !isSet(filepath.Join(settings, all)) {
			no[f] = fmt.Errorf("this node forwards no packets of IPv%d: set net.%s=1", 4+2*f, strings.ReplaceAll(all, "/", "."))
		}
	}
	devices, err := os.ReadDir(filepath.Join(settings, "ipv4/conf"))
	if no[0] != nil || err != nil {
		return no
	}
	for _, d := range devices {
		switch name := d.Name(); {
		case name == "all" || name == "default" || name == "lo" || isSet(filepath.Join(settings, "ipv4/conf", name, "forwarding")) || !isUp(name):
		default:
			no[0] = fmt.Errorf("this node forwards no packets of IPv4 that come in by %s: set net.ipv4.conf.%s.forwarding=1", name, name)
			return no
		}
	}
	return no
}

// isSet reports whether a setting is there and not 0.
func isSet(setting string) bool {
	value, err := os.ReadFile(setting)
	return err == nil && !bytes.HasPrefix(value, []byte("0"))
}

// isUp reports whether an interface is up.
func isUp(device string) bool {
	i, err := net.InterfaceByName(device)
	return err == nil && i.Flags&net.FlagUp != 0
}

// Dropping returns an error that names a chain which drops what the node forwards unless a rule accepts it; nil: there is none that
// nftables shows. What is accepted there is not known, so the kernel carries nothing.
func Dropping() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	chains, err := conn.ListChains()
	switch {
	case errors.Is(err, syscall.EPERM):
		return ErrNoCapability
	case err != nil:
		return fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		if c.Hooknum == nil || c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop || *c.Hooknum != *nftables.ChainHookForward {
			continue
		}
		if f := c.Table.Family; f == nftables.TableFamilyIPv4 || f == nftables.TableFamilyIPv6 || f == nftables.TableFamilyINet {
			return fmt.Errorf("chain %q of table %q has policy drop for what the node forwards: have it accept, and drop by rules what it must", c.Name, c.Table.Name)
		}
	}
	return nil
}
