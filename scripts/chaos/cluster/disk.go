package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// spareRoom is how much larger than the data a small disk is, in bytes: etcd's write-ahead log reserves
// a segment of 64 MB ahead when it is opened, and another when one is full.
const spareRoom = 160 << 20

// MoveToSmallDisk kills a member and moves its data to a disk that has little more room than they need. It returns where the disk is
// mounted.
func (c *Cluster) MoveToSmallDisk(ctx context.Context, m *Member) (disk string, err error) {
	defer try.Catch(&err)
	disk = c.Path("disk")
	try.Do(os.Mkdir(disk, 0o700))
	m.Kill()
	size := try.Get(sizeOf(m.Data))
	try.Get(process.Output(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size+spareRoom), "tmpfs", disk))
	c.disk = disk
	return disk, m.moveData(filepath.Join(disk, "data"))
}

// sizeOf adds up the files below dir, in bytes.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// moveData moves the data directory. The member must not be running.
func (m *Member) moveData(to string) error {
	if err := os.CopyFS(to, os.DirFS(m.Data)); err != nil {
		return err
	}
	from := m.Data
	m.Data = to
	return errors.Join(os.Chmod(to, 0o700), os.RemoveAll(from)) // etcd demands it
}

// LeaveSmallDisk moves the data back from the small disk, if there is one, and removes the disk. The member is down afterwards.
func (c *Cluster) LeaveSmallDisk() error {
	if c.disk == "" {
		return nil
	}
	for _, m := range c.Members {
		if filepath.Dir(m.Data) == c.disk {
			m.Kill()
			if err := m.moveData(c.Path("data")); err != nil {
				return err
			}
		}
	}
	return c.unmount()
}

func (c *Cluster) unmount() error {
	if c.disk == "" {
		return nil
	}
	_, err := process.Output(context.Background(), "umount", c.disk)
	if err == nil {
		err = os.Remove(c.disk)
	}
	if err == nil {
		c.disk = ""
	}
	return err
}

// CanMount returns why this process cannot mount a disk; nil: it can.
func CanMount() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can mount a small disk")
	}
	_, err := exec.LookPath("mount")
	return err
}
