//go:build !linux

package proxy

// newEngine makes the engine for this system.
func newEngine(cfg Config, own *ownPorts) engine { return newPortable(cfg, own) }
