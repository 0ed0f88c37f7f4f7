package model

import (
	"strings"
	"testing"
)

// calm is a service without deaths: ten datagrams of a hundred were dropped, and each of the others was answered.
func calm() Flows {
	return Flows{Asked: 100, Sent: 90, Dropped: 10, Arrived: 90, Replied: 90, Received: 90, Answered: 90, Calm: true}
}

// stormy is one whose endpoints died: of what was sent to them half was not received, and three datagrams were sent twice.
func stormy() Flows {
	return Flows{Asked: 100, Sent: 93, Dropped: 10, Arrived: 50, Again: 1, Failures: 1}
}

func carried() Flows {
	return Flows{Asked: 100, Arrived: 100, Replied: 90, Answered: 90, Calm: true, Kernel: true}
}

func TestALedgerThatAgreesIsNotWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   func() Flows
		change func(*Flows)
	}{
		{"calm", calm, func(f *Flows) {}},
		{"stormy", stormy, func(f *Flows) {}},
		{"in the kernel", carried, func(f *Flows) {}},
		{"an endpoint does not read fast enough", calm, func(f *Flows) { f.Arrived, f.EndpointFull = 85, 5 }},
		{"a client does not read fast enough", calm, func(f *Flows) { f.Answered, f.ClientFull = 85, 5 }},
		{"kube-proxy does not read replies fast enough", calm, func(f *Flows) { f.Received, f.Answered, f.SessionFull = 85, 85, 5 }},
		{"a device loses some of them", carried, func(f *Flows) { f.Arrived, f.QueueFull = 97, 5 }},
		{"a process drains", calm, func(f *Flows) { f.Sent, f.Drained = 20, true }},
		{"kube-proxy drops a reply while the port is its own", carried, func(f *Flows) { f.Answered, f.Dropped = 89, 1 }},
		{"endpoints of the kernel died", carried, func(f *Flows) { f.Calm, f.Arrived = false, 50 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			flows := c.from()
			c.change(&flows)
			if wrong := flows.Judge(); len(wrong) > 0 {
				t.Errorf("wrong: %q", wrong)
			}
		})
	}
}

func TestALedgerThatDoesNotAgreeIsWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   func() Flows
		change func(*Flows)
		want   string
	}{
		{"a datagram is another", calm, func(f *Flows) { f.Foreign = 1 }, "1 datagrams were received that had not been sent so"},
		{"one arrives twice", calm, func(f *Flows) { f.Again = 1 }, "arrived twice"},
		{"many arrive twice", stormy, func(f *Flows) { f.Again = 66 }, "66 datagrams arrived twice"},
		{"one is not counted", calm, func(f *Flows) { f.Dropped = 9 }, "neither counted as carried nor as dropped: 1 "},
		{"one is counted twice", calm, func(f *Flows) { f.Dropped = 11 }, "neither counted as carried nor as dropped: -1 "},
		{"one is counted as sent and is not", calm, func(f *Flows) { f.Arrived = 89 }, "sent to endpoints, and not received: 1 "},
		{"a reply is counted as sent and is not", calm, func(f *Flows) { f.Answered = 89 }, "sent to clients, and not received: 1 "},
		{"more arrive than were counted", stormy, func(f *Flows) { f.Arrived = 94 }, "endpoints received 94 datagrams; kube-proxy counted 93"},
		{"datagrams are lost with an endpoint", stormy, func(f *Flows) { f.Sent = 89 }, "1 datagrams of 100 were counted neither as sent nor as dropped"},
		{"too many are counted", stormy, func(f *Flows) { f.Sent = 156 }, "166 datagrams were counted"},
		{"the kernel loses one", carried, func(f *Flows) { f.Arrived = 99 }, "to endpoints and to clients: 1 "},
		{"the kernel loses a reply", carried, func(f *Flows) { f.Answered = 89 }, "to endpoints and to clients: 1 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			flows := c.from()
			c.change(&flows)
			if wrong := flows.Judge(); !strings.Contains(strings.Join(wrong, "\n"), c.want) {
				t.Errorf("wrong: %q; want a sentence with %q", wrong, c.want)
			}
		})
	}
}
