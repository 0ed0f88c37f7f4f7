//go:build linux

package peers

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Viewers follow the status page of one process, as browsers do that show it: each has a connection, and is sent what changes.
type viewers struct {
	bodies  []io.Closer
	reading sync.WaitGroup
}

// come has n viewers come, and returns once each has been sent a whole page. They read on until the process ends or they leave.
func (v *viewers) come(n int, url string) error {
	for range n {
		browser := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}}
		answer, err := browser.Get(url)
		if err != nil {
			return fmt.Errorf("a viewer: %w", err)
		}
		v.bodies = append(v.bodies, answer.Body)
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("a viewer: %s answers %s", url, answer.Status)
		}
		events := bufio.NewReader(answer.Body)
		if _, err := events.ReadString('\n'); err != nil {
			return fmt.Errorf("a viewer: %w", err)
		}
		v.reading.Go(func() {
			_, _ = io.Copy(io.Discard, events) // it ends with the process
		})
	}
	return nil
}

// leave ends what come began.
func (v *viewers) leave() {
	for _, body := range v.bodies {
		body.Close()
	}
	v.reading.Wait()
	v.bodies = nil
}
