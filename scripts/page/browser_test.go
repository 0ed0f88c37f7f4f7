//go:build browser

// The page in Chromium, from a file. `make browser` runs this file, once `make page` has made the page.
package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"kubeproxy/internal/browsertest"
)

// open opens the page in a tab of some width and colours.
func open(t *testing.T, browser context.Context, url string, width int, scheme string) *browsertest.Tab {
	t.Helper()
	return browsertest.Open(t, browser, url,
		browsertest.Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		browsertest.Command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 900, DeviceScaleFactor: 1, Mobile: width < 500}))
}

// await waits until an expression contains what is wanted.
func await(b *browsertest.Tab, expression, want string) {
	b.Await(expression, func(got string) bool { return strings.Contains(got, want) }, want)
}

// TestInABrowserALessonIsPlayedByKeyboard, from a file, wide and narrow, light and dark; then the last step is undone.
func TestInABrowserALessonIsPlayedByKeyboard(t *testing.T) {
	path, err := filepath.Abs("../../bin/page.html")
	if _, missing := os.Stat(path); err != nil || missing != nil {
		t.Fatalf("%v, %v: make page makes it", err, missing)
	}
	browser := browsertest.Browse(t)
	for _, width := range []int{1300, 400} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				b := open(t, browser, "file://"+path+"#silent", width, scheme)
				await(b, "document.body.dataset.ready > 0", "true")
				t.Logf("ready %s ms after the page was opened", b.Eval("document.body.dataset.ready"))
				await(b, "document.querySelector('#title').textContent", "silent")
				b.Eval("document.querySelector('input[name=guess]').focus()")
				b.Press(kb.ArrowDown) // the second choice
				await(b, "document.querySelector('input[name=guess]:checked').value", "1")
				b.Press(kb.Tab, kb.Enter) // Play
				await(b, "document.querySelector('#explained')?.textContent", "As you predicted")
				if facts := b.Eval("[...document.querySelectorAll('.facts li')].map(f => f.className + ' ' + f.textContent).join('\\n')"); strings.Count(facts, "good ✓") != 5 || strings.Contains(facts, "not so") || !strings.Contains(facts, "answers client 2 (t = 252 ms)") {
					t.Errorf("the facts of the lesson:\n%s", facts)
				}
				if over := b.Eval("document.documentElement.scrollWidth - innerWidth"); over != "0" && !strings.HasPrefix(over, "-") {
					t.Errorf("the page is %s pixels wider than the window", over)
				}
				b.Shoot(filepath.Join("..", "..", "bin", fmt.Sprintf("page-%d-%s.png", width, scheme)))
				if names := b.Eval("[...document.querySelectorAll('#lines button')].map(x => x.textContent).join()"); !strings.Contains(names, "endpoint.go:") {
					t.Errorf("no log line leads to the source: %s", names)
				}
				b.Eval("document.querySelector('#lines button[title=\"proxy/tcp/connection.go\"]').click()")
				await(b, "document.querySelector('#source mark').textContent", "nfof")
				b.Press(kb.Escape)
				before := b.Eval("machine.state.clients.length")
				b.Eval("document.querySelector('#tcp-1').click()")
				await(b, "machine.state.clients.length - "+before, "1")
				b.Eval("document.querySelector('#undo').click()")
				await(b, "machine.state.clients.length - "+before, "0")
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
	b := open(t, browsertest.Browse(t), "file://"+path, 1300, "light")
	await(b, "document.body.dataset.ready > 0", "true")
	for _, id := range strings.Split(b.Eval("LESSONS.map(l => l.id).join()"), ",") {
		b.Eval("location.hash = '" + id + "'")
		await(b, "lesson.id + done.length", id+"0")
		b.Eval("document.querySelectorAll('input[name=guess]')[lesson.steps[0].right].click()")
		b.Eval("document.querySelector('#play').click()")
		await(b, "document.querySelector('#explained')?.textContent", "As you predicted")
		if wrong := b.Eval("document.querySelectorAll('.facts .bad').length"); wrong != "0" {
			t.Errorf("lesson %s: %s facts are not so", id, wrong)
		}
	}
	if n := b.Eval("LESSONS.length"); n != "7" {
		t.Errorf("there are %s lessons", n)
	}
}

// openLesson opens the page at a lesson.
func openLesson(t *testing.T, id string) *browsertest.Tab {
	t.Helper()
	path, err := filepath.Abs("../../bin/page.html")
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, browsertest.Browse(t), "file://"+path+"#"+id, 1300, "light")
	await(b, "document.body.dataset.ready > 0", "true")
	return b
}

// click clicks what selectors find, one after the other, and waits until the page has done all that it was asked for.
func click(b *browsertest.Tab, selectors ...string) {
	for _, s := range selectors {
		b.Eval("document.querySelector('" + s + "').click()")
	}
	b.Eval("(window.finished = false, busy.then(() => { window.finished = true; }))")
	await(b, "window.finished", "true")
}

// TestInABrowserAButtonWorksWhileTimeRuns, by mouse and by Space, though the page draws everything anew meanwhile. A field keeps its caret.
func TestInABrowserAButtonWorksWhileTimeRuns(t *testing.T) {
	b := openLesson(t, "turns")
	b.Eval("document.querySelector('#run').click()")
	pass := func() { await(b, "machine.state.now >= 120 + "+b.Eval("machine.state.now"), "true") }
	mouse := func(selector string) {
		var p input.DispatchMouseEventParams
		at := b.Eval("(() => { const e = document.querySelector('" + selector + "'); e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return (r.x + r.width / 2) + ' ' + (r.y + r.height / 2); })()")
		if _, err := fmt.Sscan(at, &p.X, &p.Y); err != nil {
			t.Fatalf("%s is at %q: %v", selector, at, err)
		}
		p.Button, p.ClickCount = input.MouseButtonLeft, 1
		for _, p.Type = range []input.DispatchMouseEventType{input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased} {
			b.Do(browsertest.Command(input.DispatchMouseEvent, p))
			pass()
		}
	}
	space := func(selector string) {
		b.Eval("document.querySelector('" + selector + "').focus()")
		for _, p := range []input.DispatchKeyEventParams{{Type: input.DispatchKeyEventTypeKeyDown, Text: " "}, {Type: input.DispatchKeyEventTypeKeyUp}} {
			p.Key, p.Code, p.WindowsVirtualKeyCode = " ", "Space", 32
			b.Do(browsertest.Command(input.DispatchKeyEvent, p))
			pass()
		}
	}
	check := func(expression, want string) {
		t.Helper()
		if got := b.Eval(expression); got != want {
			t.Errorf("%s is %q; want %q", expression, got, want)
		}
	}
	mouse("#host-two-refuses")
	check("machine.state.hosts[1].state", "refuses")
	space("#host-three-silent")
	check("machine.state.hosts[2].state", "silent")
	check("document.activeElement.id", "host-three-silent")
	mouse("input[name=guess][value=\"1\"]")
	check("document.querySelector('input[name=guess]:checked')?.value", "1")
	mouse("#registry summary")
	check("document.querySelector('#registry details').open", "true")
	for _, field := range []string{"#ask-hold", "#registry textarea"} {
		was := b.Eval("(() => { const e = document.querySelector('" + field + "'); e.focus(); e.setSelectionRange(2, 2); return e.value; })()")
		for _, text := range []string{"4", "5"} {
			pass()
			b.Do(browsertest.Command(input.InsertText, input.InsertTextParams{Text: text}))
		}
		pass()
		check("document.querySelector('"+field+"').value", was[:2]+"45"+was[2:])
	}
	b.Eval("document.activeElement.blur()")
	await(b, "document.querySelector('#clock').textContent.replace(/[^0-9.]/g, '') - machine.state.now", "0") // and all is drawn again
}

// TestInABrowserFactsHoldWhateverTheReaderDidBefore: each fact is one of the world that the steps before it make.
func TestInABrowserFactsHoldWhateverTheReaderDidBefore(t *testing.T) {
	b := openLesson(t, "refuses")
	const right, run, again, undo = "input[name=guess][value=\"1\"]", "#play", "#again", "#undo" // the second choice is right in all steps here
	holds := func(after string) {
		t.Helper()
		if got := b.Eval("facts.map((f) => (f.holds ? '' : 'not so: ') + f.text).join('\\n')"); got != b.Eval("lesson.steps[step].play.flatMap((p) => p.facts).map((f) => f.text).join('\\n')") || b.Eval("told") != "played" {
			t.Errorf("after %s the facts are:\n%s", after, got)
		}
	}
	none := func(after string) {
		t.Helper()
		if got := b.Eval("facts.length + told"); got != "0" {
			t.Errorf("after %s there are facts, or the step is over: %s", after, got)
		}
	}
	click(b, right)
	b.Eval("(() => { const p = document.querySelector('#play'); p.click(); p.click(); })()")
	click(b)
	holds("a double click")
	click(b, undo, run)
	holds("Undo")
	click(b, "#host-two-up", "#tcp-1", "[data-pass=\"100\"]", "#next", right, run)
	holds("something tried between two steps")
	click(b, "[data-pass=\"1\"]", undo, undo, run)
	holds("Undo in the second step")

	click(b, again, right, run, again)
	none("Again during a play")
	click(b, right, run)
	holds("a play that did not end")
	click(b, again, right)
	b.Eval("document.querySelector('#play').click()")
	await(b, "facts.length > 0", "true")
	click(b, undo)
	none("Undo during a play")
	click(b, run)
	holds("Undo during a play")

	click(b, again, right)
	b.Eval("document.querySelector('#play').click()")
	await(b, "facts.length > 0", "true")
	b.Eval("location.hash = 'claims'")
	await(b, "lesson.id", "claims")
	click(b)
	none("another lesson during a play")
	click(b, right, run)
	holds("another lesson during a play")
}

// TestInABrowserARecordIsShownAsItIs: a text that was typed and not written says so, beside what the registry has, and does not outlive the world of its record.
func TestInABrowserARecordIsShownAsItIs(t *testing.T) {
	b := openLesson(t, "bad")
	const field = "document.getElementById('record-/registry/services/specs/web')"
	b.Eval("document.querySelector('[data-pass]').focus()")
	edit := func() {
		b.Eval("(() => { const e = " + field + "; e.focus(); e.value = 'mine'; e.dispatchEvent(new Event('input', { bubbles: true })); })()")
	}
	shown := func(after, want string) {
		t.Helper()
		if got := b.Eval(field + ".value + [...document.querySelectorAll('#registry p.wait')].filter((p) => !p.hidden).map((p) => p.textContent).join()"); got != want {
			t.Errorf("after %s the page shows %q; want %q", after, got, want)
		}
	}
	const was = `{"kind":"Service","apiVersion":"v1beta1","id":"web","port":8000,"protocol":"TCP"}`
	shown("nothing", was)
	edit()
	shown("typing", "mineNot written. The registry has "+was)
	click(b, "#again")
	shown("Again", was)
	click(b, "[data-pass]")
	edit()
	click(b, "#undo")
	shown("Undo", was)
	edit()
	b.Eval("location.hash = 'turns'")
	await(b, "lesson.id", "turns")
	click(b)
	shown("another lesson", was)
	edit()
	b.Eval("(document.activeElement.blur(), void inTurn(() => advance([{ do: 'write', records: [{ key: '/registry/services/specs/web', value: 'other' }] }], 0)))")
	click(b)
	shown("a write of somebody else", "mineNot written. The registry has other")
	b.Eval("(document.getElementById('write-/registry/services/specs/web').focus(), document.activeElement.click())")
	click(b)
	shown("Write", "mine")
	if id := b.Eval("document.activeElement.id"); id != "write-/registry/services/specs/web" {
		t.Errorf("after Write the focus is at %q; want it where it was", id)
	}
}
