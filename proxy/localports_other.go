//go:build !linux

package proxy

// localPorts is not known here.
func localPorts() (first, last uint16, ok bool) { return 0, 0, false }

func readLocalRange() localRange { return localRange{} }
