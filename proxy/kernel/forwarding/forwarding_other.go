//go:build !linux

package forwarding

// Missing finds nothing on this system.
func Missing() (no [2]error) { return no }

// Dropping finds nothing on this system.
func Dropping() error { return nil }
