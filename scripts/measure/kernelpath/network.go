//go:build linux

package kernelpath

// Addresses and ports of the three machines.
const (
	nodeToClient, clientAddr   = "10.81.1.1", "10.81.1.2"
	nodeToBackend, backendAddr = "10.81.2.1", "10.81.2.2"

	echoPort      = 9000 // of the backend, both protocols
	rulePort      = 9001 // of the node: the rule
	kernelPort    = 9002 // a service whose endpoint is checked
	userspacePort = 9003 // one whose endpoint is not
	firstMany     = 20000
)
