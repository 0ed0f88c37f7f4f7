package tcp

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/traffic"
)

// What can happen to a side, as a script spells it. A big letter is the side that acts in the case, a small one the other.
//
//	f  a read finds its FIN
//	r  a read finds that it was reset
//	v  a read finds that it has vanished, or HasVanished does
//	p  a write to it fails by EPIPE
//	w  a write to it fails by ECONNRESET
//	t  a write to it fails by ETIMEDOUT
func happens(t *Teardown, event byte, actor Side) (verdict string) {
	side := actor
	if event >= 'a' {
		side = actor.other()
	}
	ended := func(err error) string {
		return [...]string{Wait: "wait", Finish: "finish", Flush: "flush", End: "end"}[t.Ended(side, err)]
	}
	switch strings.ToLower(string(event)) {
	case "f":
		return ended(nil)
	case "r":
		return ended(&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	case "v":
		return ended(ErrVanished)
	case "p":
		t.Unwritable(side, &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)})
	case "w":
		t.Unwritable(side, syscall.ECONNRESET)
	case "t":
		t.Unwritable(side, syscall.ETIMEDOUT)
	}
	return "-"
}

// Each case is told with the client as the one who acts, and with the backend: the rules are the same.
func TestHowAConnectionEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		script  string
		want    string // the verdicts
		reason  string // with the side that it names: A for who acts, o for the other
		closed  string // who is closed in the end; the others are reset
		refuses string // who takes no more
		left    string // who survives: only where one does
	}{
		{name: "both finish", script: "Ff", want: "finish end", reason: "A finished", closed: "Ao"},
		{name: "one finishes, and is reset then", script: "fR", want: "finish flush", reason: "A reset", closed: "A", refuses: "A", left: "o"},
		{name: "one finishes, and the other is reset", script: "Fr", want: "finish flush", reason: "o reset", closed: "o", refuses: "o", left: "A"},
		{name: "one is reset", script: "R", want: "flush", reason: "A reset", refuses: "A", left: "o"},
		{name: "one vanishes", script: "V", want: "flush", reason: "A vanished", refuses: "A", left: "o"},
		{name: "one is reset, and the other before it is delivered", script: "Rr", want: "flush end", reason: "A reset", refuses: "Ao"},
		{name: "one is reset, and the other finishes before it is delivered", script: "Rf", want: "flush flush", reason: "A reset", refuses: "A", closed: "A", left: "o"},
		{name: "one vanishes when it has finished", script: "FV", want: "finish flush", reason: "A vanished", refuses: "A", closed: "o", left: "o"},

		// EPIPE: it had finished before it went.
		{name: "one has gone, and its FIN is read then", script: "PF", want: "- finish", reason: "A reset", refuses: "A", closed: "o"},
		{name: "one has gone, the other finishes, its FIN is read then", script: "PfF", want: "- wait end", reason: "A reset", refuses: "A", closed: "Ao"},
		{name: "one has gone, its FIN is read, the other finishes", script: "PFf", want: "- finish end", reason: "A reset", refuses: "A", closed: "Ao"},
		{name: "one finishes, and has gone", script: "FP", want: "finish -", reason: "A reset", refuses: "A", closed: "o"},
		{name: "one finishes, has gone, and the other finishes", script: "FPf", want: "finish - end", reason: "A reset", refuses: "A", closed: "Ao"},
		{name: "one has gone, and the other is reset: what is thrown away is no reason", script: "Pr", want: "- end", reason: "A reset", refuses: "Ao"},
		{name: "one has gone, and the other vanishes", script: "Pv", want: "- end", reason: "A reset", refuses: "Ao"},

		// ECONNRESET: it had not finished.
		{name: "one takes no more, and its end hides behind a FIN", script: "WF", want: "- flush", reason: "A reset", refuses: "A", left: "o"},
		{name: "one takes no more, and its end is a reset", script: "WR", want: "- flush", reason: "A reset", refuses: "A", left: "o"},
		{name: "one takes no more, and the other finishes before its end is read", script: "WfF", want: "- wait flush", reason: "A reset", refuses: "A", closed: "A", left: "o"},
		{name: "one takes no more, its end is read, and the other finishes", script: "WFf", want: "- flush flush", reason: "A reset", refuses: "A", closed: "A", left: "o"},
		{name: "one takes no more, and the other is reset", script: "Wr", want: "- end", reason: "A reset", refuses: "Ao"},
		{name: "one takes no more because it has vanished", script: "TF", want: "- flush", reason: "A vanished", refuses: "A", left: "o"},
		{name: "the first reason counts", script: "TR", want: "- flush", reason: "A vanished", refuses: "A", left: "o"},
	} {
		for actor, names := range [2]struct{ actor, other string }{{"client", "endpoint"}, {"endpoint", "client"}} {
			t.Run(c.name+", "+names.actor, func(t *testing.T) {
				td, actor := new(Teardown), Side(actor)
				var verdicts []string
				for i := range len(c.script) {
					verdicts = append(verdicts, happens(td, c.script[i], actor))
				}
				if got := strings.Join(verdicts, " "); got != c.want {
					t.Errorf("%s: %s; want %s", c.script, got, c.want)
				}
				for name, check := range map[string]struct {
					is   func(Side) bool
					want string
				}{
					"is closed":    {td.IsClean, c.closed},
					"refuses":      {td.Refuses, c.refuses},
					"has finished": {td.HasFinished, finishers(c.script)},
				} {
					got := ""
					for i, side := range []Side{actor, actor.other()} {
						if check.is(side) {
							got += string("Ao"[i])
						}
					}
					if got != check.want {
						t.Errorf("who %s: %q; want %q", name, got, check.want)
					}
				}
				if left := map[Side]string{actor: "A", actor.other(): "o"}[td.Survivor()]; c.left != "" && left != c.left {
					t.Errorf("%q survives; want %q", left, c.left)
				}
				want := strings.NewReplacer("A ", names.actor+"_", "o ", names.other+"_").Replace(c.reason)
				if got := td.Reason().String(); got != want {
					t.Errorf("it ended by %s; want %s", got, want)
				}
			})
		}
	}
}

// finishers are those whose end a script has read.
func finishers(script string) (who string) {
	for _, side := range []struct{ name, ends string }{{"A", "FRV"}, {"o", "frv"}} {
		if strings.ContainsAny(script, side.ends) {
			who += side.name
		}
	}
	return who
}

// A client that finishes and goes leaves a backend that works for nobody; a backend that does so leaves a client, and that is
// given time to finish.
func TestOnlyABackendIsStoppedWhenTheOtherSideHasGone(t *testing.T) {
	for script, want := range map[string]bool{"F": false, "P": false, "FP": true, "PF": true, "R": false, "WF": false, "fP": false} {
		for _, actor := range []Side{ClientSide, BackendSide} {
			td := new(Teardown)
			for i := range len(script) {
				happens(td, script[i], actor)
			}
			if got, want := td.WorksForNobody(), want && actor == ClientSide; got != want {
				t.Errorf("%s of side %d: the backend works for nobody: %v; want %v", script, actor, got, want)
			}
		}
	}
}

func TestAConnectionMayBeSilentForSoLongAfterItsFirstEnd(t *testing.T) {
	const timeout = 10
	for _, c := range []struct {
		name   string
		script string
		looks  [][2]int // when, and how much was delivered by then
		want   int      // the look that finds it silent; none: -1
		reason string
	}{
		{"nothing was ever delivered", "F", [][2]int{{5, 0}, {14, 0}, {15, 0}}, 2, "half_closed_timeout"},
		{"something was, before", "F", [][2]int{{5, 7}, {14, 7}, {15, 7}}, 2, "half_closed_timeout"},
		{"something is, meanwhile", "F", [][2]int{{5, 7}, {14, 8}, {23, 8}, {24, 8}}, 3, "half_closed_timeout"},
		{"something always is", "F", [][2]int{{5, 7}, {14, 8}, {23, 9}, {32, 10}}, -1, "client_finished"},
		{"behind EPIPE", "P", [][2]int{{5, 7}, {15, 7}}, 1, "half_closed_timeout"},
		{"behind a reset", "R", [][2]int{{5, 7}, {15, 7}}, 1, "client_reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			td, found := new(Teardown), -1
			for i := range len(c.script) {
				happens(td, c.script[i], ClientSide)
			}
			for i, look := range c.looks {
				if td.IsSilent(time.Duration(look[0]), uint64(look[1]), timeout) && found < 0 {
					found = i
				}
			}
			if got := td.Reason().String(); found != c.want || got != c.reason {
				t.Errorf("look %d finds it silent, and it ends by %s; want %d and %s", found, got, c.want, c.reason)
			}
		})
	}
}

// What the engine itself ends has the engine's reason, unless a side was first.
func TestTheFirstReasonToEndAConnectionCounts(t *testing.T) {
	for _, c := range []struct {
		script string
		want   string
	}{{"", "endpoint_removed"}, {"F", "endpoint_removed"}, {"P", "endpoint_removed"}, {"R", "client_reset"}, {"W", "client_reset"}} {
		td := new(Teardown)
		for i := range len(c.script) {
			happens(td, c.script[i], ClientSide)
		}
		td.Because(traffic.EndpointRemoved)
		td.Because(traffic.Shutdown)
		happens(td, 'F', BackendSide)
		if got := td.Reason().String(); got != c.want {
			t.Errorf("after %q and a removal it ends by %s; want %s", c.script, got, c.want)
		}
	}
	if got := new(Teardown).Reason(); got != traffic.Shutdown {
		t.Errorf("without any reason it ends by %v", got)
	}
}

// An error that was met before the client's end is read: the connection ends as if that read had met it.
func TestAnErrorThatWasMetEarlyIsRememberedForTheRead(t *testing.T) {
	td := new(Teardown)
	td.Broke(ClientSide, syscall.ECONNRESET)
	if td.HasFinished(ClientSide) {
		t.Error("the client's end is not to be read any more")
	}
	if got := td.Ended(ClientSide, nil); got != Flush || td.Reason() != traffic.ClientReset {
		t.Errorf("verdict %d, reason %v; want %d and %v", got, td.Reason(), Flush, traffic.ClientReset)
	}
}

// TestWhyAConnectionBrokeIsReadFromTheError: a connection log must not depend on the engine that wrote it.
func TestWhyAConnectionBrokeIsReadFromTheError(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.ECONNRESET:   "reset",
		syscall.ECONNREFUSED: "reset",
		syscall.ECONNABORTED: "reset",
		syscall.ETIMEDOUT:    "vanished",
		syscall.EHOSTUNREACH: "vanished",
		syscall.ENETUNREACH:  "vanished",
		syscall.ENETDOWN:     "vanished",
		syscall.EPERM:        "vanished",
		syscall.EACCES:       "vanished",
		syscall.EIO:          "vanished",
	} {
		for side, name := range [2]string{"client", "endpoint"} {
			for _, err := range []error{errno, &net.OpError{Op: "read", Err: os.NewSyscallError("read", errno)}} {
				for how, end := range map[string]func(*Teardown){
					"read":  func(td *Teardown) { td.Ended(Side(side), err) },
					"write": func(td *Teardown) { td.Unwritable(Side(side), err) },
				} {
					td := new(Teardown)
					end(td)
					if got, want := td.Reason().String(), fmt.Sprint(name, "_", want); got != want {
						t.Errorf("%v of the %s, %s: %s, want %s", err, name, how, got, want)
					}
				}
			}
		}
	}
}
