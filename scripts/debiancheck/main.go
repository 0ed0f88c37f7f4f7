//go:build linux

// Debiancheck runs what is shipped in a Debian that systemd has booted, in a container, and reports what it saw.
//
//	debiancheck systemd    the unit of docs: start, take-over, crash, stop, journal
//	debiancheck package    the deb in bin/dist, and the one of a later version in bin/dist-later: install, upgrade, remove, purge
//
// It needs root, systemd-nspawn and debootstrap. The first run makes the Debian root, in about a minute; it stays in the cache directory of the
// user. The container has that root below a file system in memory, which vanishes with it, and no network but a loopback that it shares with this
// program. All processes end with this one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"kubeproxy/internal/process"
)

// checks are the sub-commands.
var checks = map[string]func(*site) error{"systemd": checkSystemd, "package": checkPackage}

func main() {
	flags := flag.NewFlagSet("debiancheck", flag.ExitOnError)
	suite := flags.String("suite", "bookworm", "release of Debian")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	roots := flags.String("roots", filepath.Join(cache, "kubeproxy-debian"), "directory that keeps Debian roots")
	verbose := flags.Bool("v", false, "print each command that runs in the container")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "Usage: debiancheck systemd|package [flags]")
		flags.PrintDefaults()
	}
	if len(os.Args) < 2 || checks[os.Args[1]] == nil {
		flags.Usage()
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // ExitOnError
	root := filepath.Join(*roots, *suite)

	status, done, err := process.AgainInOwnNetwork(os.Args[1:], os.Stdout, os.Stderr, func() error {
		if _, err := process.EtcdBinary(); err != nil { // in a network of its own nothing can be fetched
			return err
		}
		return makeRoot(root, *suite)
	})
	if err == nil && !done {
		err = run(checks[os.Args[1]], root, *verbose)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "debiancheck:", err)
		status = 1
	}
	os.Exit(status)
}

func run(check func(*site) error, root string, verbose bool) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("this needs root")
	}
	began := time.Now()
	s := newSite(verbose)
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(interrupted, func() {
		_ = s.close() // it is about to end in failure already
		os.Exit(1)
	})()
	err := s.begin(root)
	if err == nil {
		err = check(s)
	}
	if failed := s.close(); err == nil {
		err = failed
	}
	if err == nil {
		fmt.Printf("all true, after %.0f s\n", time.Since(began).Seconds())
	}
	return err
}
