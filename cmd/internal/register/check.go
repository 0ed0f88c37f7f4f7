package register

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kubeproxy/registry"
)

// A Check asks an instance once whether it answers. Its error says why not. It returns soon after ctx ends.
type Check func(ctx context.Context) error

// fall is how many checks in a row must fail. One lost packet takes no instance out of service.
const fall = 2

// ParseCheck reads a check of an instance:
//
//	tcp                each TCP port accepts a connection
//	http=[:PORT]/PATH  a TCP port, by default the first of the instance, answers a GET of the path with a status from 200 to 399
//	exec=LINE          a command line for /bin/sh exits with status 0
//	none               the instance always answers
//
// An empty text is tcp if there is a TCP port, and else none.
func ParseCheck(s string, in *Instance) (Check, error) {
	var places []string
	for _, p := range in.Ports {
		if p.Protocol == registry.TCP {
			places = append(places, net.JoinHostPort(in.Address.String(), strconv.Itoa(int(p.Number))))
		}
	}
	kind, argument, _ := strings.Cut(s, "=")
	if kind == "" && argument == "" {
		kind = "none"
		if len(places) > 0 {
			kind = "tcp"
		}
	}
	var check Check // nil: always answers
	valid, needsPort := argument == "", false
	switch kind {
	case "none":
	case "tcp":
		check, needsPort = checkByTCP(places), true
	case "http":
		port, path, _ := strings.Cut(argument, "/")
		if valid = strings.HasPrefix(argument[len(port):], "/"); port != "" {
			number, isPort := strings.CutPrefix(port, ":")
			n, err := strconv.ParseUint(number, 10, 16)
			valid = valid && isPort && err == nil && n > 0
			places = []string{net.JoinHostPort(in.Address.String(), number)}
		}
		if needsPort = true; len(places) > 0 {
			check = checkByHTTP("http://" + places[0] + "/" + path)
		}
	case "exec":
		check, valid = checkByCommand(argument), argument != ""
	default:
		valid = false
	}
	switch {
	case !valid:
		return nil, fmt.Errorf("%s is not tcp, http=[:PORT]/PATH, exec=COMMAND or none", registry.Quote(s))
	case needsPort && len(places) == 0:
		return nil, fmt.Errorf("%s needs a TCP port", kind)
	}
	return check, nil
}

func checkByTCP(places []string) Check {
	return func(ctx context.Context) error {
		for _, place := range places {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", place)
			if err != nil {
				return err
			}
			_ = conn.Close() // nothing was written
		}
		return nil
	}
}

// maxBody is how much of an answer is read. The rest is not waited for.
const maxBody = 64 << 10

func checkByHTTP(url string) Check {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // a new connection is part of what is checked; and no proxy
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.CopyN(io.Discard, resp.Body, maxBody); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if resp.StatusCode < 200 || resp.StatusCode > 399 {
			return fmt.Errorf("GET %s: status %d", registry.Quote(url), resp.StatusCode)
		}
		return nil
	}
}

func checkByCommand(line string) Check {
	return func(ctx context.Context) error {
		if err := runInGroup(exec.CommandContext(ctx, "/bin/sh", "-c", line)); err != nil {
			return fmt.Errorf("%s: %w", registry.Quote(line), err)
		}
		return nil
	}
}

// A result is what came of a check.
type result struct {
	began time.Time
	err   error
}

// watch checks at once, then every interval and when it is asked to, and sends what came of it, until ctx ends. One check takes at most
// one interval.
func watch(ctx context.Context, check Check, interval time.Duration, now <-chan struct{}, results chan<- result) {
	if check == nil {
		select {
		case results <- result{began: time.Now()}:
		case <-ctx.Done():
		}
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for failed := 0; ; {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, interval)
		err := check(attempt)
		cancel()
		if err == nil {
			failed = 0
		} else {
			failed++
		}
		if failed == 0 || failed >= fall {
			select {
			case results <- result{began, err}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ticker.C:
		case <-now:
		case <-ctx.Done():
			return
		}
	}
}
