package control

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Bounds of the token of the status page, in bytes: nobody guesses one of the least.
const (
	leastToken = 16
	mostToken  = 200
)

// TokenFile returns what reads the token of the status page, after it was read once; nil without a file.
func TokenFile(path string) (read func() (string, error), err error) {
	if path == "" {
		return nil, nil
	}
	read = func() (string, error) { return readToken(path) }
	_, err = read()
	return read, err
}

// isCredential reports whether systemd has put a file there for this service alone (LoadCredential=, systemd.exec(5)). To a user who is not root it
// gives such a file by an access list, whose mask then stands where the mode has the bits of the group (acl(5)): 0440.
func isCredential(path string) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	return dir != "" && filepath.Dir(path) == filepath.Clean(dir)
}

// readToken reads a secret that only its owner may read, or, of a credential, the service.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer is no reason to wait
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no file", path)
	case info.Mode().Perm()&0o077 != 0 && !(isCredential(path) && info.Mode().Perm()&0o037 == 0):
		return "", fmt.Errorf("%s has mode %04o, so others may know the token: chmod 600", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, mostToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastToken || len(token) > mostToken {
		return "", fmt.Errorf("%s holds no token of %d to %d bytes: head -c 18 /dev/urandom | base64 makes one", path, leastToken, mostToken)
	}
	return token, nil
}
