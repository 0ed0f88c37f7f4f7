//go:build !unix

package statefile

// syncDir does nothing: a directory cannot be opened here.
func syncDir(string) error { return nil }
