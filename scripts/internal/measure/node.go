//go:build linux

package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"kubeproxy/internal/scrape"
)

// Get asks for a page over HTTP. No connection stays behind that would count among a process's descriptors.
func Get(ctx context.Context, at netip.AddrPort, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v%s", at, path), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000)) // what there is of it
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", request.URL, answer.Status, text)
	}
	return answer.Body, nil
}

// Page asks for the whole text of a page.
func Page(ctx context.Context, at netip.AddrPort, path string) ([]byte, error) {
	body, err := Get(ctx, at, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// Scrape asks for metrics.
func Scrape(ctx context.Context, at netip.AddrPort) (scrape.Metrics, error) {
	body, err := Get(ctx, at, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return scrape.Parse(body)
}
