package proxy

// newEngine makes the engine that cfg asks for.
func newEngine(cfg Config, own *ownPorts) engine {
	if cfg.Engine == Portable {
		return newPortable(cfg, own)
	}
	return newEpoll(cfg, own)
}
