package main

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

// A child is the experiment's hold on the node.
type child struct {
	*process.Process
	orders  *gob.Encoder
	stdin   io.Closer
	reports chan report // everything it says but answers, in order; closed when it has ended

	asking  sync.Mutex // one question at a time
	number  int
	answers chan answer
}

// startNode starts binary as a node. What it logs goes to log. Whoever starts it reads the reports.
func startNode(binary string, cfg nodeConfig, verbosity int, log io.Writer) (_ *child, err error) {
	defer try.Catch(&err)
	cmd := exec.Command(binary, fmt.Sprintf("-v=%d", verbosity), "node")
	said, stdout := io.Pipe()
	cmd.Stdout, cmd.Stderr = stdout, log
	stdin := try.Get(cmd.StdinPipe())
	c := &child{
		orders:  gob.NewEncoder(stdin),
		stdin:   stdin,
		reports: make(chan report, 1<<16),
		answers: make(chan answer, 1),
	}
	c.Process = try.Get(process.Run("the node", cmd))
	go func() {
		<-c.Exited() // all that it has said was read
		stdout.Close()
	}()
	go func() {
		defer close(c.reports)
		c.listen(gob.NewDecoder(said))
	}()
	if err := c.orders.Encode(cfg); err != nil {
		c.close()
		return nil, fmt.Errorf("configure the node: %w", err)
	}
	return c, nil
}

// listen sorts what the node says, until it has nothing more to say.
func (c *child) listen(reports *gob.Decoder) {
	for {
		var w wiredReport
		if err := reports.Decode(&w); err != nil {
			return
		}
		r, err := w.unwire()
		if err != nil {
			return // it cannot be read, as if it had ended
		}
		if r.Answer == nil {
			c.reports <- r
			continue
		}
		select {
		case c.answers <- *r.Answer:
		default: // to a question that was given up
		}
	}
}

// ask has the node obey, and waits for its answer.
func (c *child) ask(ctx context.Context, o order) (answer, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.number++
	o.Number = c.number
	if err := c.orders.Encode(o); err != nil {
		return answer{}, fmt.Errorf("ask the node: %w", err)
	}
	for {
		select {
		case a := <-c.answers:
			if a.Number == o.Number {
				return a, nil
			}
		case <-c.Exited():
			return answer{}, c.Running()
		case <-ctx.Done():
			return answer{}, fmt.Errorf("the node does not answer: %w", ctx.Err())
		}
	}
}

// close ends the node, by force if it does not listen, and waits until it has ended.
func (c *child) close() {
	_ = c.stdin.Close() // it ends with its orders
	c.Resume()          // which a paused one does not hear
	timer := time.AfterFunc(10*time.Second, c.Kill)
	defer timer.Stop()
	for range c.reports { // it may be in the middle of one
	}
	<-c.Exited()
}
