package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A block is 64 ports, of which the first is a multiple of 64.
type block int

const blockSize = 64

func blockOf(port int) block { return block(port / blockSize) }
func (b block) low() int     { return int(b) * blockSize }
func (b block) high() int    { return b.low() + blockSize - 1 }

// claim reports whether the block is this process's until it ends.
//
// A claim is an empty file BLOCK.PID. A process first writes its own, and then looks for others: of two processes at
// most one finds none. If both find each other's, both go on to another block. Claims of processes that have ended do
// not count. A claim is no lock on an open file, since tests count the descriptors of their process.
func (b block) claim() (bool, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("kube-proxy-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	own := b.claimOf(dir, os.Getpid())
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		return false, err
	}
	claims, err := filepath.Glob(filepath.Join(dir, strconv.Itoa(int(b))+".*"))
	if err != nil {
		return false, err
	}
	for _, claim := range claims {
		switch {
		case claim == own:
		case isRunning(claim):
			return false, os.Remove(own)
		default:
			if err := os.Remove(claim); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	return true, nil
}

// claimOf names the claim of the process pid.
func (b block) claimOf(dir string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%d.%d", b, pid))
}

// isRunning reports whether the process of a claim still runs. Of a process that this user may not signal it is assumed.
func isRunning(claim string) bool {
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(claim), "."))
	if err != nil {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, syscall.EPERM)
}
