package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/google/nftables"
)

// Supported reports whether this system has a kernel that can carry ports.
const Supported = true

var errNoCapability = errors.New("it takes CAP_NET_ADMIN")

// forwards reports whether the node forwards packets of IPv4, and of IPv6.
func forwards() (yes [2]bool) {
	for f, path := range [2]string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		value, err := os.ReadFile(path)
		yes[f] = err == nil && !bytes.HasPrefix(value, []byte("0"))
	}
	return yes
}

// dropsForwarded returns an error that names a chain which drops what the node forwards unless a rule accepts it; nil: there is none that
// nftables shows. What is accepted there is not known, so the kernel carries nothing.
func dropsForwarded() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	chains, err := conn.ListChains()
	switch {
	case errors.Is(err, syscall.EPERM):
		return errNoCapability
	case err != nil:
		return fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		if c.Hooknum == nil || c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop || *c.Hooknum != *nftables.ChainHookForward {
			continue
		}
		if f := c.Table.Family; f == nftables.TableFamilyIPv4 || f == nftables.TableFamilyIPv6 || f == nftables.TableFamilyINet {
			return fmt.Errorf("chain %s of table %s has policy drop for what the node forwards", c.Name, c.Table.Name)
		}
	}
	return nil
}
