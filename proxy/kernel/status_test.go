package kernel

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// portsBy makes counts of open ports.
func portsBy(counts map[Reason]int) []int {
	all := make([]int, numReasons)
	for r, n := range counts {
		all[r] = n
	}
	return all
}

func TestAComplaintSaysWhatToChange(t *testing.T) {
	const notForwarded = "this node forwards no packets of IPv6: set net.ipv6.conf.all.forwarding=1"
	for _, c := range []struct {
		name   string
		status Status
		want   []string // none: no complaint
	}{
		{"nothing is open", Status{Off: errors.New("it takes CAP_NET_ADMIN")}, nil},
		{"it has not begun", Status{Off: errNotYet, Ports: portsBy(map[Reason]int{Off: 2})}, nil},
		{"it ends", Status{Ports: portsBy(map[Reason]int{Off: 2})}, nil},
		{"all is carried", Status{Ports: portsBy(map[Reason]int{Carried: 2})}, nil},
		{"some is carried", Status{Ports: portsBy(map[Reason]int{Carried: 1, NotChecked: 7, Terms: 2})}, nil},
		{"checks have just begun", Status{Ports: portsBy(map[Reason]int{NotCheckedYet: 1, NotChecked: 7})}, nil},
		{"the only checked port is in doubt", Status{Ports: portsBy(map[Reason]int{InDoubt: 1, NotChecked: 7})}, nil},
		{"no endpoint is there", Status{Ports: portsBy(map[Reason]int{NoEndpoints: 3})}, nil},
		{"nothing may be carried", Status{Off: errors.New("it takes CAP_NET_ADMIN"), Ports: portsBy(map[Reason]int{Off: 3})},
			[]string{"-kernel=auto carries no port in the kernel: it takes CAP_NET_ADMIN. Userspace serves all clients."}},
		{"one family is not forwarded", Status{Forwards: [2]error{1: errors.New(notForwarded)}, Ports: portsBy(map[Reason]int{Carried: 1, NotForwarded: 1})},
			[]string{"-kernel=auto leaves 1 port in userspace: " + notForwarded + "."}},
		{"nothing is checked", Status{Ports: portsBy(map[Reason]int{NotChecked: 7, Terms: 1, NoEndpoints: 2})},
			[]string{"carries no port in the kernel: 7 ports whose endpoints are not checked; 1 port of services that want", ". Give -check_endpoints, or the annotation haproxy.org/check"}},
		{"an operator drains", Status{Ports: portsBy(map[Reason]int{Overridden: 1, NotChecked: 7})}, nil},
		{"weights", Status{Ports: portsBy(map[Reason]int{Weights: 2})}, []string{"2 ports with endpoints that have weights. Give each endpoint of a service weight 1"}},
		{"a flag", Status{Ports: portsBy(map[Reason]int{ByFlag: 2})}, []string{"2 ports bound by a flag. Leave out -max_connections_per_service"}},
	} {
		if c.status.Ports == nil {
			c.status.Ports = portsBy(nil)
		}
		got := c.status.Complaint()
		if len(c.want) == 0 && got != "" {
			t.Errorf("%s: %q; want no complaint", c.name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q; want %q in it", c.name, got, want)
			}
		}
	}
}

// What the page and the log complain of is what the alert fires for.
func TestTheAlertFiresWhereThereIsAComplaint(t *testing.T) {
	rules, err := os.ReadFile("../../docs/monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(rules), "alert: KubeProxyKernelUnused")
	rule, _, _ = strings.Cut(rule, "for:")
	var matches [3]*regexp.Regexp // always, unless, that
	found := regexp.MustCompile(`reason=~"([^"]*)"`).FindAllStringSubmatch(rule, -1)
	if len(found) != len(matches) {
		t.Fatalf("the alert names reasons %d times; want 3", len(found))
	}
	for i := range matches {
		matches[i] = regexp.MustCompile("^(" + found[i][1] + ")$")
	}
	for _, first := range Reasons() {
		for _, second := range Reasons() {
			fires := [3]bool{}
			for i, m := range matches {
				fires[i] = m.MatchString(first.String()) || m.MatchString(second.String())
			}
			s := Status{Forwards: [2]error{errors.New("not forwarded")}, Ports: portsBy(map[Reason]int{first: 1, second: 1})}
			if s.Ports[Off] > 0 {
				s.Off = errors.New("off")
			}
			if got, want := fires[0] || fires[1] && !fires[2], s.Complaint() != ""; got != want {
				t.Errorf("ports that are %s and %s: the alert fires: %t; a complaint: %q", first, second, got, s.Complaint())
			}
		}
	}
}

func TestAStatusFollowsTheNode(t *testing.T) {
	d := newDesk(t)
	d.claim(web, "web", registry.Terms{})
	d.look()
	if got := d.Status().Complaint(); got != "" {
		t.Errorf("at first: %q", got)
	}
	no := errors.New("this node forwards no packets of IPv4: set net.ipv4.ip_forward=1")
	d.Carrier.forwards = func() [2]error { return [2]error{no, errors.New("nor of IPv6")} }
	d.look()
	if got := d.Status().Complaint(); !strings.Contains(got, no.Error()) || d.Status().Ports[Off] != 1 {
		t.Errorf("without forwarding: %q, %v", got, d.Status().Ports)
	}
	d.Carrier.forwards = func() [2]error { return [2]error{} }
	d.look()
	if got := d.Status(); got.Complaint() != "" || got.Ports[Off] != 0 {
		t.Errorf("when it forwards again: %q, %v", got.Complaint(), got.Ports)
	}
}

// An operation that failed is no reason any more when it would not fail again, or when no port needs it.
func TestAStatusForgetsAFailureThatNoPortNeedsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.claim(web, "web", registry.Terms{})
		d.put(web, addresses("10.0.0.1:80")...)
		d.broken = 1
		d.table().fails = 1
		d.put(web, addresses("10.0.0.2:80")...)
		d.put(web, addresses("10.0.0.2:80")...) // the second time it is put off
		d.judgeAllLocked()
		d.Apply()
		if got := d.Status(); !errors.Is(got.Off, errSlate) || got.Ports[Off] != 1 {
			t.Fatalf("after a failure: %v, %v", got.Off, got.Ports)
		}
		d.broken = 0
		d.look()
		if got := d.Status(); !errors.Is(got.Off, errSlate) {
			t.Errorf("before another try: %v; want what has failed", got.Off)
		}
		time.Sleep(period)
		d.claim(web, "web", registry.Terms{Limits: registry.Limits{PerClient: 1}})
		d.look()
		if got := d.Status(); got.Off != nil || !strings.Contains(got.Complaint(), obstacles[Terms].is) || d.complaint != got.Complaint() {
			t.Errorf("when the port wants what the kernel cannot do: %v, %q, and the log says %q", got.Off, got.Complaint(), d.complaint)
		}
	})
}

// What the manual says of the reason is what the node complains of.
func TestTheManualNamesEachFlagThatKeepsPortsInUserspace(t *testing.T) {
	flags := regexp.MustCompile(`-[a-z_]{5,}`).FindAllString(strings.TrimSuffix(obstacles[ByFlag].change, "or -kernel=auto"), -1)
	if len(flags) < 6 {
		t.Errorf("flags are %v; want six", flags)
	}
	for path, row := range map[string]string{"../../docs/kernel.md": "\n| `flag` |", "../../docs/security.md": "`TestTheKernelGetsNoClientsToWhomAFlagApplies`"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(text), row)
		line := strings.TrimPrefix(string(text[strings.LastIndex(string(text[:at+1]), "\n"):]), "\n")
		line, _, _ = strings.Cut(line, "\n")
		for _, flag := range flags {
			if !strings.Contains(line, flag) {
				t.Errorf("%s does not name %s: %s", path, flag, line)
			}
		}
	}
}
