package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

func init() {
	all = append(all,
		Fault{Name: "quota", About: "a member exceeds its quota: the cluster refuses writes until the alarm is disarmed", inject: exceedQuota},
		Fault{Name: "full-disk", About: "the disk of a member is full for a while", able: CanMount, inject: fillDisk},
	)
}

// exceedQuota is a database that has grown to its quota. Etcd raises the alarm NOSPACE and
// refuses what would add to it; reads and watches go on, and nothing changes any more.
func exceedQuota(ctx context.Context, c Target, r *rand.Rand) error {
	m := c.Members[r.IntN(len(c.Members))]
	length := between(r, 200*time.Millisecond, 2*time.Second)
	m.Kill()
	m.Extra = []string{"--quota-backend-bytes=1"}
	err := c.Start(ctx)
	m.Extra = nil
	if err != nil {
		return err
	}
	if err := sleep(ctx, length); err != nil { // in which the writer sets off the alarm
		return err
	}
	alarms := 0
	err = c.Do(ctx, "list alarms", func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.AlarmList(ctx)
		if err == nil {
			alarms = len(resp.Alarms)
		}
		return err
	})
	c.Logf("%s exceeded its quota for %v; alarms: %d", m.Name, length, alarms)
	m.Kill()
	return firstError(err, c.Start(ctx), c.DisarmAlarms(ctx))
}

// fillDisk is a log that filled the disk which it shares with etcd. A member that cannot write dies at once, and again after each start,
// until there is room. It may answer requests before it dies.
func fillDisk(ctx context.Context, c Target, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	m := c.Members[r.IntN(len(c.Members))]
	length := between(r, time.Second, 3*time.Second)
	disk := try.Get(c.MoveToSmallDisk(ctx, m))
	try.Do(c.Start(ctx))
	filler := filepath.Join(disk, "log")
	try.Do(fill(filler))
	deaths, err := supervise(ctx, c, m, length)
	c.Logf("the disk of %s was full for %v; it died of it %d times", m.Name, length, deaths)
	removed := os.Remove(filler)
	m.Kill() // or it could still die of a write that found no room, in the midst of what follows
	return firstError(err, removed, c.Start(ctx), c.LeaveSmallDisk(), c.Start(ctx), c.DisarmAlarms(ctx))
}

// fill writes a file until the disk has no room.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	// Pages of decreasing size, so that nothing is left over.
	for _, size := range []int{1 << 20, 4 << 10} {
		page := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(page)
		}
	}
	return nil // the disk is full
}

// supervise starts a member again whenever it dies, and returns how often it died.
func supervise(ctx context.Context, c Target, m *Member, length time.Duration) (deaths int, err error) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return deaths, err
		}
		if !m.IsRunning() {
			deaths++
			if err := c.StartMember(m); err != nil {
				return deaths, err
			}
		}
	}
	return deaths, nil
}

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
