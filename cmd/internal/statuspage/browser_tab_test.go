//go:build browser

// A tab of Chromium: what tests do with it, and what they read from it.
package statuspage_test

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

// A tab is one page of the browser.
type tab struct {
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

// browse starts a browser, which ends with the test.
func browse(t *testing.T) context.Context {
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

// An action is a step in a tab.
type action = chromedp.Action[chromedp.Void]

// command makes an action of a command of the DevTools protocol.
func command[P, R any](c cdp.Command[P, R], params P) action {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// collect has what an event reports added to the reports of a tab, until the tab is closed.
func collect[E any](b *tab, event cdp.Event[E], report func(E) string) action {
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

// open opens a page in a new tab. At the end of the test no policy was violated in it, and no script failed.
func open(t *testing.T, browser context.Context, url string, first ...action) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	if err := chromedp.Do(ctx); err != nil { // which makes the tab, without a time limit
		t.Fatal(err)
	}
	b := &tab{Context: ctx, t: t}
	t.Cleanup(func() {
		end()
		b.collecting.Wait()
		for _, report := range b.reports {
			t.Errorf("the browser reports: %s", report)
		}
	})
	b.do(
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
		command(log.Enable, cdp.Empty{}), command(audits.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}),
	)
	b.do(first...)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) do(actions ...action) {
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

// get runs an action that has a result.
func get[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	result, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// eval evaluates a JavaScript expression to a string.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	return get(b, chromedp.Evaluate[string]("String("+expression+")"))
}

// await waits until an expression, which may be that of a page that is being loaded, is what is wanted.
func (b *tab) await(expression string, is func(string) bool, what string) {
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

// press types keys, one after the other.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// shoot saves a picture of the page under bin.
func (b *tab) shoot(name string) {
	b.t.Helper()
	b.save("status-"+name+".png", get(b, chromedp.FullScreenshot(100)))
}

// save writes a picture under bin.
func (b *tab) save(name string, picture []byte) {
	b.t.Helper()
	dir := filepath.Join("..", "..", "..", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
