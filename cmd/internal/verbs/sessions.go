package verbs

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/inert"
)

// addSelection adds the flags that name clients.
func addSelection(f *pflag.FlagSet, s *control.Selection) {
	f.StringVar(&s.Service, "service", "", "only clients of this `service`: NAME or NAMESPACE/NAME")
	f.StringVar(&s.Client, "client", "", "only this `client`: an address, ADDRESS:PORT or a network such as 10.0.0.0/24")
	f.StringVar(&s.Endpoint, "endpoint", "", "only clients of this `endpoint`: HOST:PORT, or HOST for all of its ports")
}

// newSessions is for "kube-proxy sessions", which lists what a node carries.
func newSessions() *Verb {
	v := newVerb("sessions", "", "lists the connections and UDP sessions of a running node")
	v.Timeout = time.Minute
	var selected control.Selection
	v.AddFlags = func(f *pflag.FlagSet) { addSelection(f, &selected) }
	v.Examine = func(args []string) error {
		if _, err := selected.Parse(); err != nil {
			return err
		}
		return atMost(args, 0)
	}
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		answer, err := node.Open(ctx, http.MethodGet, "/v1/sessions", selected.Query(), nil)
		if err != nil {
			return 0, err
		}
		defer answer.Close()
		if v.Output == asJSON {
			return Done, copyLines(stdout, answer)
		}
		out := bufio.NewWriter(stdout) // below inert.Writer, which needs whole characters
		err = printSessions(inert.Writer(out), answer)
		return Done, cmp.Or(err, out.Flush())
	}
	return v
}

// copyLines copies lines of JSON. What they say is the node's, also of another release; that a terminal only shows it is seen to here.
func copyLines(w io.Writer, lines io.Reader) error {
	out := bufio.NewWriter(w)
	for decoder := json.NewDecoder(lines); ; {
		var one json.RawMessage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return out.Flush()
		} else if err != nil {
			out.Flush()
			return fmt.Errorf("the list is cut off: %w", err)
		}
		line, err := inert.Line(one)
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
}

// rowsAtOnce is how many rows of a table have the same widths: more would have to be kept.
const rowsAtOnce = 1000

func printSessions(w io.Writer, lines io.Reader) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLIENT\tSERVICE\tPORT\tENDPOINT\tFROM\tAGE\tIDLE\tSENT\tRECEIVED\tSTATE")
	n := 0
	for decoder := json.NewDecoder(lines); ; n++ {
		var s control.Session
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("the list is cut off: %w", err)
		}
		fmt.Fprintf(table, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", s.Client, s.Service, s.Protocol, place(s.Address, s.Port),
			cmp.Or(s.Endpoint, "-"), cmp.Or(s.Local, "-"), seconds(s.Age), seconds(s.Idle), s.Sent, s.Received, state(&s))
		if n%rowsAtOnce == rowsAtOnce-1 {
			table.Flush()
		}
	}
	if n == 0 {
		fmt.Fprintln(table, "no client")
	}
	return table.Flush()
}

// seconds shows a time.
func seconds(s float64) string {
	if s < 0 {
		return "-"
	}
	d := time.Duration(s * float64(time.Second))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// place is where clients connect to: a port of the node, or one at an address of a service.
func place(address string, port uint16) string {
	number := strconv.Itoa(int(port))
	if address == "" {
		return number
	}
	return net.JoinHostPort(address, number)
}

// state shows the two sides of a connection.
func state(s *control.Session) string {
	switch {
	case s.Endpoint == "":
		return "looks for an endpoint"
	case s.ClientState == "":
		return "-"
	}
	return s.ClientState + " / " + cmp.Or(s.EndpointState, "-")
}

// newKill is for "kube-proxy kill", which ends clients.
func newKill() *Verb {
	v := newVerb("kill", "", "ends connections and UDP sessions of a running node, at once")
	v.Timeout = time.Minute
	var selected control.Selection
	v.AddFlags = func(f *pflag.FlagSet) { addSelection(f, &selected) }
	v.Examine = func(args []string) error {
		if selected == (control.Selection{}) {
			return errors.New("name those to end: -client, -endpoint or -service")
		}
		if _, err := selected.Parse(); err != nil {
			return err
		}
		return atMost(args, 0)
	}
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		var killed control.Killed
		if err := node.Post(ctx, "/v1/kill", &selected, &killed); err != nil {
			return 0, err
		}
		return Done, v.print(stdout, &killed, func(w io.Writer) { fmt.Fprintf(w, "ended %s of %s\n", clients(int64(killed.Ended)), &selected) })
	}
	return v
}

// newWait is for "kube-proxy wait", which waits until an endpoint has no client. It ends with Problem if there are some when its time is over.
func newWait() *Verb {
	v := newVerb("wait", "", "waits until an endpoint has no client on a running node, or on several, and exits with 3 if it has some after -timeout")
	v.Timeout = 5 * time.Minute
	endpoint, revision := "", int64(0)
	var nodes commandline.List
	v.AddFlags = func(f *pflag.FlagSet) {
		f.StringVar(&endpoint, "endpoint", "", "the `endpoint`: HOST:PORT, or HOST for all of its ports")
		f.Var(&nodes, "nodes", "ask these `nodes` at their -metrics_bind_address, each HOST:PORT or HOST (port 10249), separated by commas, in place of the socket of one; repeat to add more")
		f.Int64Var(&revision, "revision", 0, "with -nodes: each has to have this `revision` of the registry in force, too")
	}
	v.Examine = func(args []string) (err error) {
		if revision != 0 && len(nodes) == 0 || revision < 0 {
			return errors.New("-revision is more than 0, and goes with -nodes")
		}
		if nodes, err = nodeAddresses(nodes); err != nil {
			return err
		}
		selected := control.Selection{Endpoint: endpoint}
		if endpoint == "" {
			return errors.New("no endpoint: give -endpoint=HOST:PORT")
		}
		if _, err := selected.Parse(); err != nil {
			return err
		}
		return atMost(args, 0)
	}
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		if len(nodes) > 0 {
			found := askNodes(ctx, nodes, endpoint, revision)
			status := Done
			if found.Left > 0 {
				status = Problem
			}
			return status, v.print(stdout, found, func(w io.Writer) { printNodes(w, found, v.Timeout) })
		}
		var left control.Left
		query := url.Values{"endpoint": {endpoint}, "timeout": {v.Timeout.String()}}
		patient, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), v.Timeout+answerGrace, fmt.Errorf("no answer for %v", v.Timeout+answerGrace))
		defer cancel()
		if err := node.Get(patient, "/v1/wait", query, &left); err != nil {
			return 0, err
		}
		status := Done
		if left.Clients > 0 {
			status = Problem
		}
		return status, v.print(stdout, &left, func(w io.Writer) {
			if left.Clients == 0 {
				fmt.Fprintf(w, "%s has no client on this node\n", commandline.OneLine(endpoint))
			} else {
				fmt.Fprintf(w, "%s has %s on this node after %v\n", commandline.OneLine(endpoint), clients(left.Clients), v.Timeout)
			}
		})
	}
	return v
}

// answerGrace is how much later than the end of its time a node may answer.
const answerGrace = 10 * time.Second

// clients says how many clients there are.
func clients(n int64) string { return count(n, "client") }

func count(n int64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
