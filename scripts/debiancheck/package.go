//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/scripts/internal/try"
)

// The deb of this tree, and one of a later version. In the machine they are in /tmp.
const (
	packageName        = "kube-proxy-classic" // and that of program, unit and directories
	firstDeb, laterDeb = "/tmp/first.deb", "/tmp/later.deb"
	settings           = "/etc/" + packageName + "/config.yaml"
)

// checkPackage walks through the life of the deb: nothing, installed, enabled, upgraded, removed, nothing. Beside it lives a kube-proxy of Kubernetes.
func checkPackage(s *site) (err error) {
	defer try.Catch(&err)
	for at, pattern := range map[string]string{firstDeb: "bin/dist/*_amd64.deb", laterDeb: "bin/dist-later/*_amd64.deb"} {
		found := try.Get(filepath.Glob(pattern))
		if len(found) != 1 {
			return fmt.Errorf("%s is %q; one file was expected", pattern, found)
		}
		try.Do(s.install(found[0], at, 0o644))
	}
	other := try.Get(s.layOutKubernetes())
	try.Do(s.layOutAppArmor())
	before := try.Get(s.everyFile())
	try.Do(s.installStartsNothing())
	try.Do(other.untouched())
	try.Do(s.servesOnceEnabled())
	try.Do(s.rotatesItsLog())
	try.Do(s.reloadsItsSettings())
	try.Do(s.upgradeTakesOver())
	try.Do(s.removeStops())
	try.Get(s.run("dpkg", "--purge", packageName))
	try.Do(s.appArmorWasAsked("--replace", "--replace", "--replace", "--remove")) // install, upgrade, rollback, remove
	after := try.Get(s.everyFile())
	var left []string
	for _, name := range after {
		if _, was := slices.BinarySearch(before, name); !was {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("dpkg --purge left:\n%s", strings.Join(left, "\n"))
	}
	say("dpkg --purge: of %d files and directories none is new since before the installation", len(after))
	try.Do(other.untouched())
	say("Kubernetes' kube-proxy has run beside it all the time: its unit, process, program and files are as before")
	return s.isCalledKubeProxyWhereNobodyElseIs()
}

// everyFile lists the files of the machine, sorted: but for those in memory, and those that dpkg, logrotate and systemd themselves keep.
func (s *site) everyFile() ([]string, error) {
	text, err := s.run("find", "/", "-xdev", "(", "-path", "/var/log/journal", "-o", "-path", "/var/lib/dpkg", "-o", "-path", "/var/lib/systemd", "-o", "-path", "/var/lib/logrotate", ")",
		"-prune", "-o", "-print")
	names := strings.Split(text, "\n")
	slices.Sort(names)
	return names, err
}

// appArmorAsked has a line for each call of apparmor_parser.
const appArmorAsked = "/tmp/apparmor"

// layOutAppArmor puts programs into the machine that stand for AppArmor's: they say that it is in use, and note what is asked of it. So the scripts of the
// package are tried where the kernel has no AppArmor, too; dist-check has the real parser read the profile.
func (s *site) layOutAppArmor() (err error) {
	defer try.Catch(&err)
	for name, does := range map[string]string{"aa-enabled": "exit 0", "apparmor_parser": "echo \"$@\" >>" + appArmorAsked} {
		try.Do(os.WriteFile(s.path("/usr/sbin/"+name), []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	return nil
}

// appArmorWasAsked checks what was done with the profile of the package, in order, and with no other.
func (s *site) appArmorWasAsked(actions ...string) error {
	text, err := s.run("cat", appArmorAsked)
	if err != nil {
		return err
	}
	var done []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[len(words)-1] != "/etc/apparmor.d/"+packageName {
			return fmt.Errorf("apparmor_parser was called with %q", words)
		}
		done = append(done, words[0])
	}
	if !slices.Equal(done, actions) {
		return fmt.Errorf("apparmor_parser was asked to %q; want %q", done, actions)
	}
	say("AppArmor: the profile was loaded by the installation, the upgrade and the rollback, and unloaded by dpkg --remove")
	return nil
}

// installStartsNothing, and enables nothing.
func (s *site) installStartsNothing() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("dpkg", "--install", firstDeb))
	active, _ := s.run("systemctl", "is-active", packageName) // its exit status says the same
	enabled, _ := s.run("systemctl", "is-enabled", packageName)
	if active != "inactive" || enabled != "disabled" || !refuses() {
		return fmt.Errorf("the unit is %s and %s after the installation", active, enabled)
	}
	verified := try.Get(s.run("systemd-analyze", "verify", "kube-proxy-classic.service"))
	say("dpkg --install: the unit is %s and %s; systemd-analyze verify says %q", active, enabled, verified)
	return nil
}

func (s *site) servesOnceEnabled() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("systemctl", "enable", "--now", packageName))
	try.Do(ask(serviceAddr))
	checked := try.Get(s.run(packageName, "check", "-config="+settings))
	say("systemctl enable --now kube-proxy-classic: a client is answered, by %s; kube-proxy check says:", try.Get(servedVersion()))
	for line := range strings.Lines(checked) {
		say("    %s", strings.TrimRight(line, "\n"))
	}
	return nil
}

// rotatesItsLog by the rule that the package has.
func (s *site) rotatesItsLog() (err error) {
	defer try.Catch(&err)
	const log = "/var/log/kube-proxy-classic/connections.log"
	has := func() bool {
		info, err := os.Stat(s.path(log))
		return err == nil && info.Size() > 0
	}
	try.Do(await("the connection log has a line", has))
	try.Get(s.run("logrotate", "--force", "/etc/logrotate.d/kube-proxy-classic"))
	try.Do(await("the rotated log is there", func() bool { return exists(s.path(log + ".1")) }))
	try.Do(await("the new connection log has a line", func() bool { // what ended before the signal is in the old one
		err = ask(serviceAddr)
		return err != nil || has()
	}))
	try.Do(err)
	say("logrotate --force: %s.1 is there, and new lines go to a new file", log)
	return nil
}

// mine is what the administrator adds to the settings.
const mine = "v: 1\n"

// reloadsItsSettings: a process with the new ones takes over. If they are wrong, the process that runs goes on.
func (s *site) reloadsItsSettings() (err error) {
	defer try.Catch(&err)
	text := try.Get(os.ReadFile(s.path(settings)))
	before := s.mainPID()
	try.Do(os.WriteFile(s.path(settings), append(slices.Clip(text), "v: loud\n"...), 0o644))
	try.Get(s.run("systemctl", "reload", packageName))
	try.Do(await("the journal has the end of the successor", func() bool {
		journal, _ := s.run("journalctl", "--unit="+packageName)
		return strings.Contains(journal, "the successor has ended")
	}))
	try.Do(ask(serviceAddr))
	if s.mainPID() != before {
		return fmt.Errorf("process %d runs in place of %d, with wrong settings", s.mainPID(), before)
	}
	say("systemctl reload kube-proxy-classic with a wrong setting: process %d goes on", before)

	try.Do(os.WriteFile(s.path(settings), append(slices.Clip(text), mine...), 0o644))
	try.Do(s.takesOver("systemctl", "reload", packageName))
	journal := try.Get(s.run("journalctl", "--unit="+packageName, "_PID="+strconv.Itoa(s.mainPID()))) // of the successor
	if !strings.Contains(journal, "listening for") {
		return fmt.Errorf("the successor does not log at level 1:\n%s", journal)
	}
	return nil
}

// upgradeTakesOver, and keeps what the administrator has changed.
func (s *site) upgradeTakesOver() (err error) {
	defer try.Catch(&err)
	first := try.Get(servedVersion())
	try.Do(s.takesOver("dpkg", "--install", laterDeb))
	later := try.Get(servedVersion())
	if later == first {
		return fmt.Errorf("it is still %s that answers", first)
	}
	if text := try.Get(os.ReadFile(s.path(settings))); !strings.HasSuffix(string(text), mine) {
		return errors.New("the upgrade has replaced " + settings)
	}
	try.Do(s.takesOver("dpkg", "--install", firstDeb)) // a rollback
	if back := try.Get(servedVersion()); back != first {
		return fmt.Errorf("after the rollback %s answers", back)
	}
	say("the upgrade went from %s to %s and back, and kept %s", first, later, settings)
	return nil
}

func (s *site) removeStops() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("dpkg", "--remove", packageName))
	loaded := try.Get(s.property("LoadState"))
	if !refuses() || loaded != "not-found" || exists(s.path("/usr/bin/"+packageName)) || !exists(s.path(settings)) {
		return fmt.Errorf("after dpkg --remove the unit is %s, or the port is open, or the program is there, or %s is not", loaded, settings)
	}
	rotated := try.Get(s.run("logrotate", "--force", "/etc/logrotate.d/kube-proxy-classic")) // dpkg keeps its rule, and cron goes on with it
	say("dpkg --remove: the service has ended, the unit is %s, %s stays; logrotate says %q", loaded, settings, rotated)
	return nil
}

var versionField = regexp.MustCompile(`"version": *"([^"]*)"`)

// servedVersion asks the process that serves for its version.
func servedVersion() (string, error) {
	answer, err := http.Get("http://127.0.0.1:10449/version")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	found := versionField.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("no version in %q", text)
	}
	return string(found[1]), nil
}
