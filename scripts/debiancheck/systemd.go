//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/try"
)

// checkSystemd installs bin/kube-proxy and the unit of docs as the manual says, and walks through the life of the service.
func checkSystemd(s *site) (err error) {
	defer try.Catch(&err)
	try.Do(s.install("bin/kube-proxy", "/usr/local/bin/"+packageName, 0o755))
	try.Do(s.install("docs/kube-proxy-classic.service", "/etc/systemd/system/kube-proxy-classic.service", 0o644))
	try.Get(s.run("systemctl", "daemon-reload"))
	try.Do(s.startsReady())
	try.Do(s.takesOver("systemctl", "reload", packageName))
	try.Do(s.survivesKill())
	try.Do(s.journalHasPriorities())
	try.Do(s.stopLeavesNothing())
	return nil
}

// startsReady: when systemctl start returns, the service is served.
func (s *site) startsReady() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("systemctl", "start", packageName))
	try.Do(ask(serviceAddr))
	kind, status := try.Get(s.property("Type")), ""
	if kind != "notify" {
		return fmt.Errorf("the unit has Type=%s", kind)
	}
	try.Do(await("the status of the unit is that it serves", func() bool {
		status, err = s.property("StatusText")
		return strings.HasPrefix(status, "serving: 1 ports open")
	}))
	say("systemctl start kube-proxy-classic returned with the port open: Type=%s, STATUS=%q", kind, status)
	return err
}

// survivesKill: clients that connect after the end of the process and before the next one wait in the sockets that systemd keeps.
func (s *site) survivesKill() (err error) {
	defer try.Catch(&err)
	if kept := try.Get(s.property("NFileDescriptorStore")); kept != "1" {
		return fmt.Errorf("systemd keeps %s sockets; one was expected", kept)
	}
	killed := s.mainPID()
	p := pressOn(serviceAddr)
	try.Get(s.run("sh", "-c", "kill -KILL "+strconv.Itoa(killed)))
	err = await("the process has ended", func() bool { return !exists(s.path(fmt.Sprintf("/proc/%d", killed))) })
	var waiting []net.Conn
	for range 5 {
		conn, failed := net.DialTimeout("tcp", serviceAddr, patience)
		if err = errors.Join(err, failed); failed == nil {
			defer conn.Close()
			waiting = append(waiting, conn)
		}
	}
	restarting := s.mainPID() == 0
	for _, conn := range waiting {
		err = errors.Join(err, sayOn(conn))
	}
	seen := p.end()
	try.Do(err)
	if p.refused.Load() > 0 || p.answered.Load() == 0 {
		return errors.New(seen)
	}
	if !restarting {
		return errors.New("the next process ran before the clients came: this run shows nothing")
	}
	say("kill -9 %d: %d clients that came while no process ran were answered by process %d; %s", killed, len(waiting), s.mainPID(), seen)
	return nil
}

// journalHasPriorities: glog's severities are those of the journal.
func (s *site) journalHasPriorities() (err error) {
	defer try.Catch(&err)
	const bad = registry.SpecsPrefix + "bad"
	try.Do(s.put(bad, "not a record"))
	lines := ""
	try.Do(await("the journal has a line about "+bad, func() bool {
		lines, err = s.run("journalctl", "--output=json", "_COMM=kube-proxy-clas") // as the kernel shortens it
		return strings.Contains(lines, bad)
	}))
	count := make(map[string]int)
	for line := range strings.Lines(lines) {
		var entry struct{ Message, Priority string }
		try.Do(json.Unmarshal([]byte(line), &entry))
		if want := map[byte]string{'I': "6", 'W': "4", 'E': "3", 'F': "2"}[entry.Message[0]]; want != "" && entry.Priority != want {
			return fmt.Errorf("priority %s in the journal, and %s was expected: %s", entry.Priority, want, entry.Message)
		}
		count[entry.Priority]++
	}
	if count["6"] == 0 || count["4"]+count["3"] == 0 {
		return fmt.Errorf("the journal has lines of these priorities: %v", count)
	}
	say("the journal has %d lines of priority 6 (info), %d of 4 (warning) and %d of 3 (error), as glog wrote them", count["6"], count["4"], count["3"])
	return nil
}

// stopLeavesNothing but the saved state and the logs.
func (s *site) stopLeavesNothing() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("systemctl", "stop", packageName))
	left := try.Get(s.run("sh", "-c", "grep -lx kube-proxy-clas /proc/[0-9]*/comm; find /run /tmp /var/tmp -name '*kube-proxy*' ! -path '/run/systemd/*'; true"))
	if !refuses() {
		left += "\nan open port"
	}
	if kept := try.Get(s.property("NFileDescriptorStore")); kept != "0" {
		left += "\n" + kept + " sockets that systemd keeps"
	}
	state, result := try.Get(s.property("ActiveState")), try.Get(s.property("Result"))
	if left != "" || state != "inactive" || result != "success" {
		return fmt.Errorf("the unit is %s (%s), and there is still:\n%s", state, result, left)
	}
	say("systemctl stop kube-proxy-classic: no process, no port, no socket kept, nothing in /run; the unit is %s, with %s", state, result)
	return nil
}
