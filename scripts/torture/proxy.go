//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/internal/scrape"
	"kubeproxy/scripts/torture/model"
)

// A proxy is kube-proxy, one process after the other.
type proxy struct {
	group   *process.Group
	command []string // what starts it, without its engine
	metrics string   // address
	engine  string   // of the process that serves

	mu      sync.Mutex // guards now and started
	now     *process.Process
	started int

	log     int64 // offset in the connection log up to which it was read
	scraper http.Client
}

// readyIn is how long a process may take to be ready, and its predecessor to end: that lets connections finish.
const readyIn = 6 * time.Minute

func newProxy(group *process.Group, command []string, metrics string) *proxy {
	return &proxy{group: group, command: command, metrics: metrics, scraper: http.Client{
		Timeout: readyIn, Transport: &http.Transport{DisableKeepAlives: true}, // a process that hands over closes its connections
	}}
}

func (p *proxy) registry() string      { return filepath.Join(p.group.Dir, "records") }
func (p *proxy) connectionLog() string { return filepath.Join(p.group.Dir, "connections.log") }

// process returns the process that serves.
func (p *proxy) process() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// errGoesOn is that the process goes on that a successor was to take over from.
var errGoesOn = errors.New("the predecessor goes on")

// start starts a process, and returns once it is ready. One that serves before has then ended, or goes on and the error is errGoesOn: both
// give up a take-over for which the other takes too long.
func (p *proxy) start(engine string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.now
	p.started++
	next, err := p.group.Start(fmt.Sprintf("kube-proxy-%d", p.started), append(p.command, "-engine="+engine)...)
	if err != nil {
		return err
	}
	if before != nil {
		select {
		case <-before.Exited():
		case <-next.Exited():
			if before.Running() == nil && strings.Contains(next.LastWords(), fmt.Sprintf("-takeover: process %d goes on", before.PID())) {
				return errGoesOn
			}
			return next.Running()
		case <-time.After(readyIn):
			return fmt.Errorf("the predecessor still runs %v after its successor was started:\n%s", readyIn, before.LastWords())
		}
		if state := before.State(); !state.Success() {
			return fmt.Errorf("the predecessor ended with %v:\n%s", state, before.LastWords())
		}
	}
	p.now, p.engine = next, engine
	return next.Await(readyIn, func() bool {
		answer, err := p.scraper.Get("http://" + p.metrics + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// scrape reads the metrics. It tries again while a process hands over to the next one.
func (p *proxy) scrape(ctx context.Context) (scrape.Metrics, error) {
	for deadline := time.Now().Add(readyIn); ; {
		m, err := p.scrapeOnce(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return m, err
		}
		if err := p.process().Running(); err != nil {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *proxy) scrapeOnce(ctx context.Context) (scrape.Metrics, error) {
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := p.scraper.Do(question)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return scrape.Parse(answer.Body)
}

// A logged is a line of the connection log.
type logged struct {
	model.Line
	protocol string
	client   netip.AddrPort
}

// readLog returns the lines of the connection log that were written since it was last called.
func (p *proxy) readLog() (lines []logged, err error) {
	file, err := os.Open(p.connectionLog())
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(p.log, io.SeekStart); err != nil {
		return nil, err
	}
	for r := bufio.NewReader(file); ; {
		text, err := r.ReadBytes('\n')
		if err != nil {
			return lines, nil // the rest of a line is read with the next ones
		}
		p.log += int64(len(text))
		var fields struct {
			Service, Protocol, Reason string
			Client                    netip.AddrPort
			Sent, Received            int64
		}
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("the connection log has a bad line: %w: %s", err, text)
		}
		lines = append(lines, logged{model.Line{Service: filepath.Base(fields.Service), Sent: fields.Sent, Received: fields.Received, Reason: fields.Reason},
			fields.Protocol, fields.Client})
	}
}
