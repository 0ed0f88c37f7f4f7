//go:build browser

// The page in Chromium, from a file. `make browser` runs this file, once `make page` has made the page.
package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long anything may take in a browser on a loaded machine.
const patience = time.Minute

// A tab is one page of the browser.
type tab struct {
	context.Context
	t *testing.T

	mu     sync.Mutex // guards errors
	errors []string   // of scripts
}

// browse starts a browser, which ends with the test.
func browse(t *testing.T) context.Context {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience)) // root cannot have a sandbox
			allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
			t.Cleanup(end)
			browser, end := chromedp.NewContext(allocator)
			t.Cleanup(end)
			if err := chromedp.Do(browser); err != nil {
				t.Fatal(err)
			}
			return browser
		}
	}
	t.Fatal("there is no Chromium; install it: apt-get install --no-install-recommends chromium-headless-shell fonts-dejavu-core")
	return nil
}

func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// open opens the page in a new tab of some width and colours. At the end no script has failed.
func open(t *testing.T, browser context.Context, url string, width int, scheme string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	b := &tab{Context: ctx, t: t}
	var collecting sync.WaitGroup
	t.Cleanup(func() {
		end()
		collecting.Wait()
		for _, e := range b.errors {
			t.Errorf("a script failed: %s", e)
		}
	})
	b.do(chromedp.Func(func(_ context.Context, target *chromedp.Target) error {
		thrown := cdp.Events(b.Context, target, runtime.ExceptionThrown)
		collecting.Go(func() {
			for e, err := range thrown {
				if err != nil {
					return
				}
				b.mu.Lock()
				b.errors = append(b.errors, fmt.Sprintf("%s, line %d, %+v", e.ExceptionDetails.Text, e.ExceptionDetails.LineNumber, e.ExceptionDetails.Exception))
				b.mu.Unlock()
			}
		})
		return nil
	}))
	b.do(command(runtime.Enable, cdp.Empty{}))
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
	b.do(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 900, DeviceScaleFactor: 1, Mobile: width < 500}))
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) do(a chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	if err := chromedp.Do(ctx, a); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) eval(expression string) string {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// await waits until an expression is what is wanted.
func (b *tab) await(expression, want string) {
	b.t.Helper()
	var last string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if last = b.eval(expression); strings.Contains(last, want) {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Fatalf("%s is %q; want %q; scripts: %v", expression, last, want, b.errors)
}

func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// shoot saves a picture under bin.
func (b *tab) shoot(name string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, patience)
	defer stop()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err = errors.Join(err, os.WriteFile(filepath.Join("../../bin", name), picture, 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

// TestInABrowserALessonIsPlayedByKeyboard, from a file, wide and narrow, light and dark; then the last step is undone.
func TestInABrowserALessonIsPlayedByKeyboard(t *testing.T) {
	path, err := filepath.Abs("../../bin/page.html")
	if _, missing := os.Stat(path); err != nil || missing != nil {
		t.Fatalf("%v, %v: make page makes it", err, missing)
	}
	browser := browse(t)
	for _, width := range []int{1300, 400} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				b := open(t, browser, "file://"+path+"#silent", width, scheme)
				b.await("document.body.dataset.ready > 0", "true")
				t.Logf("ready %s ms after the page was opened", b.eval("document.body.dataset.ready"))
				b.await("document.querySelector('#title').textContent", "silent")
				b.eval("document.querySelector('input[name=guess]').focus()")
				b.press(kb.ArrowDown) // the second choice
				b.await("document.querySelector('input[name=guess]:checked').value", "1")
				b.press(kb.Tab, kb.Enter) // Play
				b.await("document.querySelector('#explained')?.textContent", "As you predicted")
				if facts := b.eval("[...document.querySelectorAll('.facts li')].map(f => f.className + ' ' + f.textContent).join('\\n')"); strings.Count(facts, "good ✓") != 5 || strings.Contains(facts, "not so") || !strings.Contains(facts, "answers client 2 (t = 252 ms)") {
					t.Errorf("the facts of the lesson:\n%s", facts)
				}
				if over := b.eval("document.documentElement.scrollWidth - innerWidth"); over != "0" && !strings.HasPrefix(over, "-") {
					t.Errorf("the page is %s pixels wider than the window", over)
				}
				b.shoot(fmt.Sprintf("page-%d-%s.png", width, scheme))
				if names := b.eval("[...document.querySelectorAll('#lines button')].map(x => x.textContent).join()"); !strings.Contains(names, "endpoint.go:") {
					t.Errorf("no log line leads to the source: %s", names)
				}
				b.eval("document.querySelector('#lines button[title=\"proxy/tcp/connection.go\"]').click()")
				b.await("document.querySelector('#source mark').textContent", "nfof")
				b.press(kb.Escape)
				before := b.eval("machine.state.clients.length")
				b.eval("document.querySelector('#tcp-1').click()")
				b.await("machine.state.clients.length - "+before, "1")
				b.eval("document.querySelector('#undo').click()")
				b.await("machine.state.clients.length - "+before, "0")
			})
		}
	}
}

// TestInABrowserEachLessonPlays.
func TestInABrowserEachLessonPlays(t *testing.T) {
	path, err := filepath.Abs("../../bin/page.html")
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, browse(t), "file://"+path, 1300, "light")
	b.await("document.body.dataset.ready > 0", "true")
	for _, id := range strings.Split(b.eval("LESSONS.map(l => l.id).join()"), ",") {
		b.eval("location.hash = '" + id + "'")
		b.await("lesson.id + done.length", id+"0")
		b.eval("document.querySelectorAll('input[name=guess]')[lesson.steps[0].right].click()")
		b.eval("document.querySelector('#play').click()")
		b.await("document.querySelector('#explained')?.textContent", "As you predicted")
		if wrong := b.eval("document.querySelectorAll('.facts .bad').length"); wrong != "0" {
			t.Errorf("lesson %s: %s facts are not so", id, wrong)
		}
	}
	if n := b.eval("LESSONS.length"); n != "7" {
		t.Errorf("there are %s lessons", n)
	}
}
