package model

import (
	"fmt"
	"slices"
)

// A Connection is what is known of one connection when it is over.
type Connection struct {
	Script   Script
	Client   Side
	Endpoint *Side  // nil: no endpoint knows it
	Lines    []Line // of the connection log
	Kernel   bool   // the kernel may have carried it: then it has no line
}

// Judge returns what is wrong with a connection, one sentence for each fault.
func Judge(c Connection) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if c.Client.Saw == Refused {
		say("the client was not connected: %s", c.Client.Problem)
		return wrong
	}
	if c.Endpoint == nil {
		c.withoutEndpoint(say)
		return wrong
	}
	for _, of := range []struct {
		who      string
		from, to *Side
	}{{"the endpoint", &c.Client, c.Endpoint}, {"the client", c.Endpoint, &c.Client}} {
		if of.to.Problem != "" {
			say("%s: %s", of.who, of.to.Problem)
		}
		direction(of.who, of.from, of.to, say)
	}
	c.judgeLog(say)
	return wrong
}

// withoutEndpoint judges a connection whose greeting no endpoint has received in full.
func (c Connection) withoutEndpoint(say func(string, ...any)) {
	switch {
	case c.Client.Saw == Hung:
		say("no endpoint heard of the client, which still waits")
	case c.Client.Saw == Clean:
		say("no endpoint heard of the client, which saw a clean end")
	case !c.Client.brokeOff():
		say("no endpoint heard of the client, which saw %v", c.Client.Saw)
	}
	if len(c.Lines) > 1 {
		say("the connection log has %d lines for the connection; want at most 1", len(c.Lines))
	}
	for _, l := range c.Lines {
		if l.Reason != "client_reset" {
			say("the connection log says %s; the client reset its connection", l.Reason)
		}
	}
}

// direction judges the bytes from one side to the other, and how their end arrived.
func direction(who string, from, to *Side, say func(string, ...any)) {
	if to.Differs >= 0 {
		say("%s received a byte at offset %d that is not the one that was sent", who, to.Differs)
		return
	}
	if to.Received > from.Sent {
		say("%s received %d bytes; only %d were sent", who, to.Received, from.Sent)
	}
	switch to.Saw {
	case Clean:
		// Who leaves sends FIN or a reset: its kernel decides by what was not read yet. After a FIN all has to be there.
		if !from.Finished && !from.Left {
			say("%s saw a clean end; the other side did not finish (it %s)", who, from.howItEnded())
		} else if to.Received != from.Sent {
			say("%s saw a clean end after %d bytes; %d were sent", who, to.Received, from.Sent)
		}
	case WasReset:
		if !from.brokeOff() {
			say("%s was reset; the other side did not reset its connection (it %s)", who, from.howItEnded())
		}
		// Who breaks off itself may lose what is on its way to it. Its own read of a reset shows that it has not done so yet.
		if from.Reset && !to.Left && to.Received < from.Acked {
			say("%s was reset after %d bytes; %d had been acknowledged before the other side reset", who, to.Received, from.Acked)
		}
	case Hung:
		say("%s still waits, after %d bytes of %d; the other side %s", who, to.Received, from.Sent, from.howItEnded())
	}
	if to.SendError != "" && !from.brokeOff() && !to.brokeOff() {
		say("%s could not send: %s; the other side did not reset its connection", who, to.SendError)
	}
}

func (s *Side) howItEnded() string {
	switch {
	case s.Reset:
		return "reset it"
	case s.Left:
		return "left"
	case s.Finished:
		return "finished"
	}
	return "has not ended"
}

// judgeLog compares both sides with the connection log.
func (c Connection) judgeLog(say func(string, ...any)) {
	if len(c.Lines) == 0 && c.Kernel {
		return
	}
	if len(c.Lines) != 1 {
		say("the connection log has %d lines for the connection; want 1", len(c.Lines))
		return
	}
	l := c.Lines[0]
	if want := c.Script.Service.String(); l.Service != want {
		say("the connection log says service %q; want %q", l.Service, want)
	}
	// What kube-proxy hands to the kernel of a side counts, whether or not that side receives it before the end.
	counted := func(what string, n int64, from, to *Side) {
		switch {
		case n < to.Received, n > from.Sent:
			say("the connection log says %d bytes %s; %d went in and %d came out", n, what, from.Sent, to.Received)
		case to.Saw == Clean && n != to.Received:
			say("the connection log says %d bytes %s; all %d were received", n, what, to.Received)
		}
	}
	counted("sent", l.Sent, &c.Client, c.Endpoint)
	counted("received", l.Received, c.Endpoint, &c.Client)
	if want := c.reasons(); !slices.Contains(want, l.Reason) {
		say("the connection log says %s; want one of %v", l.Reason, want)
	}
}

// reasons returns why kube-proxy may say that the connection ended.
func (c Connection) reasons() (all []string) {
	client, endpoint := &c.Client, c.Endpoint
	if client.brokeOff() {
		all = append(all, "client_reset")
	}
	if endpoint.brokeOff() {
		all = append(all, "endpoint_reset")
	}
	if client.cut() || endpoint.cut() {
		return all
	}
	// That a side has finished counts as long as nobody breaks off. Who breaks off after it has finished may do so when all has been said.
	if c.Script.Client.End != FinishLast || !endpoint.Finished {
		all = append(all, "client_finished")
	}
	if c.Script.Endpoint.End != FinishLast || !client.Finished {
		all = append(all, "endpoint_finished")
	}
	return all
}

// cut reports whether a side reset its connection before it had finished.
func (s *Side) cut() bool { return s.Reset && !s.Finished }
