package proxynode

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// A Child is a node that this process has started. Reports must be read until it is closed.
type Child struct {
	*process.Process
	Reports chan Report // all but answers, in order; closed when the node has ended

	queries *gob.Encoder
	stdin   io.Closer

	asking  sync.Mutex // one query at a time
	number  int
	answers chan Answer
}

// Start starts binary as a node, whose log is written to log. The command line of binary ends with the word node.
func Start(binary string, cfg Config, verbosity int, log io.Writer) (_ *Child, err error) {
	defer try.Catch(&err)
	cmd := exec.Command(binary, fmt.Sprintf("-v=%d", verbosity), "node")
	said, stdout := io.Pipe()
	cmd.Stdout, cmd.Stderr = stdout, log
	stdin := try.Get(cmd.StdinPipe())
	c := &Child{
		queries: gob.NewEncoder(stdin),
		stdin:   stdin,
		Reports: make(chan Report, 1<<16),
		answers: make(chan Answer, 1),
	}
	c.Process = try.Get(process.Run("the node", cmd))
	go func() {
		<-c.Exited() // all of its output was read
		stdout.Close()
	}()
	go func() {
		defer close(c.Reports)
		c.read(gob.NewDecoder(said))
	}()
	if err := c.queries.Encode(cfg); err != nil {
		c.Close()
		return nil, fmt.Errorf("configure the node: %w", err)
	}
	return c, nil
}

// read sorts what the node reports, until it ends.
func (c *Child) read(reports *gob.Decoder) {
	for {
		var w wireReport
		if err := reports.Decode(&w); err != nil {
			return
		}
		r, err := w.decode()
		if err != nil {
			return // as if it had ended
		}
		if r.Answer == nil {
			c.Reports <- r
			continue
		}
		select {
		case c.answers <- *r.Answer:
		default: // to a query that timed out
		}
	}
}

// Ask sends a query and waits for its answer.
func (c *Child) Ask(ctx context.Context, q Query) (Answer, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.number++
	if err := c.queries.Encode(wireQuery{q, c.number}); err != nil {
		return Answer{}, fmt.Errorf("ask the node: %w", err)
	}
	for {
		select {
		case a := <-c.answers:
			if a.Number == c.number {
				return a, nil
			}
		case <-c.Exited():
			return Answer{}, c.Running()
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("the node does not answer: %w", ctx.Err())
		}
	}
}

// Close ends the node, by force if it does not end by itself, and waits until it has ended.
func (c *Child) Close() {
	_ = c.stdin.Close() // its end ends the node
	c.Resume()          // a paused node reads nothing
	timer := time.AfterFunc(10*time.Second, c.Kill)
	defer timer.Stop()
	for range c.Reports { // it may be about to write one
	}
	<-c.Exited()
}
