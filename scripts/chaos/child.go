package main

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A child is the experiment's hold on the node.
type child struct {
	cmd     *exec.Cmd
	orders  *gob.Encoder
	stdin   io.Closer
	reports chan report // everything it says but answers, in order; closed when it has ended
	exited  chan struct{}
	err     error // how it ended; valid once exited is closed

	asking  sync.Mutex // one question at a time
	number  int
	answers chan answer
}

// startNode starts binary as a node. What it logs goes to log. Whoever starts it reads the reports.
func startNode(binary string, cfg nodeConfig, verbosity int, log io.Writer) (*child, error) {
	cmd := exec.Command(binary, fmt.Sprintf("-v=%d", verbosity), "node")
	endWithParent(cmd)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	c := &child{
		cmd:     cmd,
		orders:  gob.NewEncoder(stdin),
		stdin:   stdin,
		reports: make(chan report, 1<<16),
		exited:  make(chan struct{}),
		answers: make(chan answer, 1),
	}
	go func() {
		defer close(c.exited)
		defer close(c.reports)
		c.listen(gob.NewDecoder(stdout))
		c.err = cmd.Wait()
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
		var r report
		if err := reports.Decode(&r); err != nil {
			return
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
		case <-c.exited:
			return answer{}, fmt.Errorf("the node has ended: %v", c.err)
		case <-ctx.Done():
			return answer{}, fmt.Errorf("the node does not answer: %w", ctx.Err())
		}
	}
}

func (c *child) signal(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

// close ends the node, by force if it does not listen, and waits until it has ended.
func (c *child) close() {
	_ = c.stdin.Close()           // it ends with its orders
	_ = c.signal(syscall.SIGCONT) // which a paused one does not hear
	timer := time.AfterFunc(10*time.Second, func() { _ = c.signal(syscall.SIGKILL) })
	defer timer.Stop()
	for range c.reports { // it may be in the middle of one
	}
	<-c.exited
}
