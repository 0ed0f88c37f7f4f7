package main

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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/try"
)

func init() {
	faults = append(faults,
		fault{name: "quota", about: "a member exceeds its quota: the cluster takes no writes until it is told to", inject: exceedQuota},
		fault{name: "full-disk", about: "the disk of a member is full until somebody makes room", able: canMount, inject: fillDisk},
	)
}

// exceedQuota is a database that has grown to what it may have. Etcd raises the alarm NOSPACE and
// refuses what would add to it; reads and watches go on, and nothing changes any more.
func exceedQuota(ctx context.Context, c *cluster, r *rand.Rand) error {
	m := c.members[r.IntN(len(c.members))]
	length := between(r, 200*time.Millisecond, 2*time.Second)
	m.Kill()
	m.extra = []string{"--quota-backend-bytes=1"}
	err := c.start(ctx)
	m.extra = nil
	if err != nil {
		return err
	}
	if err := sleep(ctx, length); err != nil { // in which the writer sets off the alarm
		return err
	}
	alarms := 0
	err = c.do(ctx, "list alarms", func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.AlarmList(ctx)
		if err == nil {
			alarms = len(resp.Alarms)
		}
		return err
	})
	c.stage.logf("%s exceeded its quota for %v; alarms: %d", m.Name, length, alarms)
	m.Kill()
	return firstError(err, c.start(ctx), c.silenceAlarms(ctx))
}

// silenceAlarms tells etcd that there is room again. What was meant to raise an alarm may do so only
// when it is repeated: so it is silenced until it stays silent.
func (c *cluster) silenceAlarms(ctx context.Context) error {
	return c.do(ctx, "disarm alarms", func(ctx context.Context, client *clientv3.Client) error {
		for {
			resp, err := client.AlarmList(ctx)
			if err != nil || len(resp.Alarms) == 0 {
				return err
			}
			for _, a := range resp.Alarms {
				if a.Alarm == etcdserverpb.AlarmType_CORRUPT {
					return errors.New("etcd says that its data are corrupt")
				}
				if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
					return err
				}
			}
		}
	})
}

// spareRoom is how much larger than the data a small disk is, in bytes: etcd's write-ahead log reserves
// a segment of 64 MB ahead when it is opened, and another when one is full.
const spareRoom = 160 << 20

// fillDisk is a log that filled the disk which etcd shares with it. A member that cannot write dies at
// once, and again each time it is started, until somebody makes room. Before it dies it may have
// answered, or not.
func fillDisk(ctx context.Context, c *cluster, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	m := c.members[r.IntN(len(c.members))]
	length := between(r, time.Second, 3*time.Second)
	disk := c.path("disk")
	try.Do(os.Mkdir(disk, 0o700))
	m.Kill()
	size := try.Get(sizeOf(m.Data))
	try.Get(run(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size+spareRoom), "tmpfs", disk))
	c.disk = disk
	try.Do(m.moveData(filepath.Join(disk, "data")))
	try.Do(c.start(ctx))
	filler := filepath.Join(disk, "log")
	try.Do(fill(filler))
	deaths, err := m.struggle(ctx, c, length)
	c.stage.logf("the disk of %s was full for %v; it died of it %d times", m.Name, length, deaths)
	return firstError(err, os.Remove(filler), c.start(ctx), c.leaveSmallDisk(), c.start(ctx), c.silenceAlarms(ctx))
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
	return nil // what was to be brought about
}

// struggle starts the member again whenever it dies, as a supervisor does, and tells how often it died.
func (m *member) struggle(ctx context.Context, c *cluster, length time.Duration) (deaths int, err error) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return deaths, err
		}
		if !m.running() {
			deaths++
			if err := c.startMember(m); err != nil {
				return deaths, err
			}
		}
	}
	return deaths, nil
}

// moveData moves the data directory. The member must not be running.
func (m *member) moveData(to string) error {
	if err := os.CopyFS(to, os.DirFS(m.Data)); err != nil {
		return err
	}
	from := m.Data
	m.Data = to
	return errors.Join(os.Chmod(to, 0o700), os.RemoveAll(from)) // etcd wants it to itself
}

// leaveSmallDisk brings the data of the member that lives on the small disk back, if there is one, and
// removes the disk. The member is down afterwards.
func (c *cluster) leaveSmallDisk() error {
	if c.disk == "" {
		return nil
	}
	for _, m := range c.members {
		if filepath.Dir(m.Data) == c.disk {
			m.Kill()
			if err := m.moveData(c.path("data")); err != nil {
				return err
			}
		}
	}
	return c.unmount()
}

func (c *cluster) unmount() error {
	if c.disk == "" {
		return nil
	}
	_, err := run(context.Background(), "umount", c.disk)
	if err == nil {
		err = os.Remove(c.disk)
	}
	if err == nil {
		c.disk = ""
	}
	return err
}

func canMount() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can mount a small disk")
	}
	_, err := exec.LookPath("mount")
	return err
}
