//go:build !linux

package ports

// LocalPorts is not known here.
func LocalPorts() (first, last uint16, ok bool) { return 0, 0, false }

// ReadLocalRange is not known either.
func ReadLocalRange() LocalRange { return LocalRange{} }
