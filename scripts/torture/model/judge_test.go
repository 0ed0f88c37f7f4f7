package model

import (
	"strings"
	"testing"
)

// whole is a connection that both sides finish, the client first.
func whole() Connection {
	return Connection{
		Script:   Script{Client: Part{Bytes: 92, End: Finish}, Endpoint: Part{Bytes: 192, End: FinishLast}},
		Client:   Side{Sent: 100, Finished: true, Received: 200, Differs: -1, Saw: Clean},
		Endpoint: &Side{Sent: 200, Finished: true, Received: 100, Differs: -1, Saw: Clean},
		Lines:    []Line{{"plain", 100, 200, "client_finished"}},
	}
}

// cut is one whose endpoint resets it in the middle of its answer.
func cut() Connection {
	return Connection{
		Script:   Script{Client: Part{Bytes: 92, End: FinishLast}, Endpoint: Part{Bytes: 192, End: ResetSending, At: 150}},
		Client:   Side{Sent: 100, Received: 140, Differs: -1, Saw: WasReset},
		Endpoint: &Side{Sent: 150, Acked: 130, Reset: true, Received: 90, Differs: -1},
		Lines:    []Line{{"plain", 100, 145, "endpoint_reset"}},
	}
}

// early is one whose client resets it before an endpoint knows it.
func early() Connection {
	return Connection{Client: Side{Sent: 5, Reset: true, Differs: -1}, Lines: []Line{{"plain", 0, 0, "client_reset"}}}
}

func TestWhatIsPromisedIsNotWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   func() Connection
		change func(*Connection)
	}{
		{"both finish", whole, func(c *Connection) {}},
		{"the endpoint resets", cut, func(c *Connection) {}},
		{"the client resets before an endpoint knows it", early, func(c *Connection) {}},
		{"it did so before it was accepted", early, func(c *Connection) { c.Lines = nil }},
		{"the kernel carried it", whole, func(c *Connection) { c.Lines, c.Kernel = nil, true }},
		{"writing fails when the other side has reset", cut, func(c *Connection) { c.Client.SendError = "broken pipe" }},
		{"both reset", cut, func(c *Connection) { c.Client.Reset, c.Client.Saw = true, Nothing }},
		{"the client leaves with everything", whole, func(c *Connection) { c.Client.Left, c.Client.Finished, c.Client.Saw = true, false, Nothing }},
		{"the endpoint leaves and its answer is cut", cut, func(c *Connection) { c.Endpoint.Left, c.Endpoint.Reset, c.Endpoint.Acked = true, false, 0 }},
		{"a reset behind FIN is told as FIN", whole, func(c *Connection) { c.Client.Reset, c.Client.Saw = true, Nothing }},
		{"a reset behind FIN is told as a reset", whole, func(c *Connection) {
			c.Client.Reset, c.Client.Saw, c.Endpoint.Saw, c.Lines[0].Reason = true, Nothing, WasReset, "client_reset"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			connection := c.from()
			c.change(&connection)
			if wrong := Judge(connection); len(wrong) > 0 {
				t.Errorf("wrong: %q", wrong)
			}
		})
	}
}

func TestWhatIsNotPromisedIsWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   func() Connection
		change func(*Connection)
		want   string // part of one of the sentences
	}{
		{"a client was not connected", whole, func(c *Connection) { c.Client.Saw = Refused }, "not connected"},
		{"a byte is another", whole, func(c *Connection) { c.Endpoint.Differs = 3 }, "offset 3"},
		{"more arrives than was sent", whole, func(c *Connection) { c.Client.Received = 201 }, "only 200 were sent"},
		{"the tail of an answer is lost", whole, func(c *Connection) { c.Client.Received = 199 }, "a clean end after 199 bytes; 200 were sent"},
		{"the tail is lost of who left", whole, func(c *Connection) { c.Endpoint.Left, c.Client.Received = true, 199 }, "a clean end after 199 bytes"},
		{"a reset becomes a clean end", cut, func(c *Connection) { c.Client.Saw = Clean }, "a clean end; the other side did not finish"},
		{"a reset becomes a clean end when all has come", cut, func(c *Connection) { c.Client.Saw, c.Client.Received = Clean, 150 }, "a clean end; the other side did not finish"},
		{"a clean end becomes a reset", whole, func(c *Connection) { c.Client.Saw = WasReset }, "the other side did not reset"},
		{"a reset overtakes data", cut, func(c *Connection) { c.Client.Received = 129 }, "130 had been acknowledged"},
		{"a reset is not passed on", cut, func(c *Connection) { c.Client.Saw = Hung }, "still waits"},
		{"writing fails though nobody reset", whole, func(c *Connection) { c.Client.SendError = "broken pipe" }, "could not send"},
		{"a PROXY header is bad", whole, func(c *Connection) { c.Endpoint.Problem = "no header" }, "the endpoint: no header"},
		{"no endpoint was given a client that finished", early, func(c *Connection) { c.Client = Side{Finished: true, Differs: -1, Saw: Clean} }, "saw a clean end"},
		{"a client was turned away", early, func(c *Connection) { c.Client = Side{Differs: -1, Saw: WasReset} }, "saw a reset"},
		{"a client that reset early was something else", early, func(c *Connection) { c.Lines[0].Reason = "dial_failed" }, "dial_failed"},
		{"no line", whole, func(c *Connection) { c.Lines = nil }, "0 lines"},
		{"two lines", whole, func(c *Connection) { c.Lines = append(c.Lines, c.Lines...) }, "2 lines"},
		{"two lines of one that ended early", early, func(c *Connection) { c.Lines = append(c.Lines, c.Lines...) }, "2 lines"},
		{"the line of another service", whole, func(c *Connection) { c.Lines[0].Service = "header-v1" }, `service "header-v1"`},
		{"bytes that were counted twice", whole, func(c *Connection) { c.Lines[0].Sent = 200 }, "200 bytes sent"},
		{"bytes that were not counted", cut, func(c *Connection) { c.Lines[0].Received = 139 }, "139 bytes received"},
		{"the wrong side finished first", whole, func(c *Connection) { c.Lines[0].Reason = "endpoint_finished" }, "endpoint_finished; want one of [client_finished]"},
		{"the wrong side reset", cut, func(c *Connection) { c.Lines[0].Reason = "client_reset" }, "client_reset; want one of [endpoint_reset]"},
		{"a reset counts as finished", cut, func(c *Connection) { c.Lines[0].Reason = "client_finished" }, "client_finished; want one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			connection := c.from()
			c.change(&connection)
			if wrong := Judge(connection); !strings.Contains(strings.Join(wrong, "\n"), c.want) {
				t.Errorf("wrong: %q; want a sentence with %q", wrong, c.want)
			}
		})
	}
}
