//go:build browser

// Package browsertest opens pages in Chromium for tests that run with the build tag browser, as `make browser` does. Without a browser
// they fail, and say what to install. The methods of a Tab end the test when a step takes longer than a minute.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a step may take in a browser on a loaded machine.
const patience = time.Minute

// A Tab is one page of the browser.
type Tab struct {
	context.Context
	t *testing.T

	collecting sync.WaitGroup
	mu         sync.Mutex // guards reports
	reports    []string   // of violations of the policy, and of errors in scripts
}

// chromium returns where the browser is. Without one the tests fail.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no Chromium; install it: apt-get install --no-install-recommends chromium-headless-shell fonts-dejavu-core")
	return ""
}

// Browse starts a browser, which ends with the test.
func Browse(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, // which root cannot have
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	browser, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(browser); err != nil {
		t.Fatal(err)
	}
	return browser
}

// An Action is a step in a tab.
type Action = chromedp.Action[chromedp.Void]

// Command makes an action of a command of the DevTools protocol.
func Command[P, R any](c cdp.Command[P, R], params P) Action {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// collect has what an event reports added to the reports of a tab, until the tab is closed.
func collect[E any](b *Tab, event cdp.Event[E], report func(E) string) Action {
	return chromedp.Func(func(_ context.Context, target *chromedp.Target) error {
		events := cdp.Events(b.Context, target, event)
		b.collecting.Go(func() {
			for e, err := range events {
				if err != nil {
					return
				}
				if text := report(e); text != "" {
					b.mu.Lock()
					b.reports = append(b.reports, text)
					b.mu.Unlock()
				}
			}
		})
		return nil
	})
}

// Open opens a page in a new tab. At the end of the test no policy was violated in it, and no script failed.
func Open(t *testing.T, browser context.Context, url string, first ...Action) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	if err := chromedp.Do(ctx); err != nil { // which makes the tab, without a time limit
		t.Fatal(err)
	}
	b := &Tab{Context: ctx, t: t}
	t.Cleanup(func() {
		end()
		b.collecting.Wait()
		for _, report := range b.reports {
			t.Errorf("the browser reports: %s", report)
		}
	})
	b.Do(
		collect(b, log.EntryAdded, func(e log.EventEntryAdded) string {
			if e.Entry.Source == log.EntrySourceSecurity || e.Entry.Source == log.EntrySourceJavascript {
				return e.Entry.Text
			}
			return ""
		}),
		collect(b, audits.IssueAdded, func(e audits.EventIssueAdded) string {
			if strings.Contains(string(e.Issue.Code), "ContentSecurityPolicy") {
				return fmt.Sprintf("%+v", e.Issue.Details)
			}
			return ""
		}),
		collect(b, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) string { return e.ExceptionDetails.Text }),
		Command(log.Enable, cdp.Empty{}), Command(audits.Enable, cdp.Empty{}), Command(runtime.Enable, cdp.Empty{}),
	)
	b.Do(first...)
	b.Do(chromedp.Navigate(url))
	return b
}

// Do runs steps one after the other.
func (b *Tab) Do(actions ...Action) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	for _, a := range actions {
		err := chromedp.Do(ctx, a)
		for isReplaced(err) && ctx.Err() == nil {
			err = chromedp.Do(ctx, a)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// isReplaced reports whether the page has replaced the element of an action after the browser found it, as it does when it loads the next
// page. The action has done nothing then.
func isReplaced(err error) bool {
	return err != nil && strings.Contains(err.Error(), "node with given id")
}

// Get runs an action that has a result.
func Get[T any](b *Tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	result, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// Eval evaluates a JavaScript expression to a string.
func (b *Tab) Eval(expression string) string {
	b.t.Helper()
	return Get(b, chromedp.Evaluate[string]("String("+expression+")"))
}

// Await waits until an expression, which may be that of a page that is being loaded, is what is wanted.
func (b *Tab) Await(expression string, is func(string) bool, what string) {
	b.t.Helper()
	var last string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ctx, stop := context.WithDeadline(b.Context, deadline)
		result, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
		stop()
		if last = result; err == nil && is(last) {
			return
		}
	}
	b.t.Fatalf("%s did not come about: %s is %q", what, expression, last)
}

// Press types keys, one after the other.
func (b *Tab) Press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.Do(chromedp.KeyEvent(key))
	}
}

// Shoot saves a picture of the whole page.
func (b *Tab) Shoot(path string) {
	b.t.Helper()
	b.save(path, Get(b, chromedp.FullScreenshot(100)))
}

// ShootWindow saves a picture of what the window shows.
func (b *Tab) ShootWindow(path string) {
	b.t.Helper()
	b.save(path, Get(b, chromedp.CaptureScreenshot()))
}

func (b *Tab) save(path string, picture []byte) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
