//go:build browser

// The status page of a whole node, in Chromium. `make browser` runs this file.
package statuspage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/node"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/internal/browsertest"
	"kubeproxy/proxy"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// patience is how long anything may take on a loaded machine.
const patience = time.Minute

// picture returns the path of a picture of the page.
func picture(name string) string {
	return filepath.Join("..", "..", "..", "bin", "status-"+name+".png")
}

// A site is a node with 130 services, of which web has clients all the time.
type site struct {
	all  *testing.T // the test that the site ends with
	etcd *etcdtest.Process
	kv   *clientv3.Client
	url  string
	web  netip.AddrPort
	ends []*proxytest.TCPServer // of web
}

const services = 130

func (s *site) put(t testing.TB, key, value string) {
	t.Helper()
	if _, err := s.kv.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func (s *site) putService(t testing.TB, name string, port uint16) {
	t.Helper()
	s.put(t, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"%s","port":%d}`, name, port))
}

func (s *site) putEndpoints(t testing.TB, name string, addrs ...string) {
	t.Helper()
	s.put(t, registry.EndpointsPrefix+name, fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"%s","endpoints":["%s"]}`, name, strings.Join(addrs, `","`)))
}

// start starts a node and its clients.
func start(t *testing.T) *site {
	t.Helper()
	s := &site{all: t, etcd: etcdtest.StartProcess(t), web: proxytest.On(proxytest.FreePort(t))}
	s.kv = s.etcd.Client(t)
	for i := range services - 1 {
		name := fmt.Sprintf("service-%03d", i)
		s.putService(t, name, proxytest.FreePort(t))
		s.putEndpoints(t, name, "192.0.2.1:80")
	}
	s.putService(t, "web", s.web.Port())
	s.putEndpoints(t, "web", s.serve(t), s.serve(t), s.serve(t))
	source, err := etcdsource.New(etcdsource.Config{Endpoints: []string{s.etcd.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	metrics := proxytest.On(proxytest.FreePort(t))
	s.url = "http://" + metrics.String()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- node.Run(ctx, node.Options{
			Sources: []config.Source{source},
			Proxy: proxy.Config{
				Config:       engine.Config{BindAddress: proxytest.Loopback, DialTimeout: patience, DialTotalTimeout: patience},
				DrainTimeout: time.Nanosecond,
			},
			Operators: operators.Config{Metrics: metrics},
			Ready:     func() { close(ready) },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := proxytest.Receive(t, done, "the end of the node"); err != nil {
			t.Error(err)
		}
	})
	proxytest.Receive(t, ready, "the first state")
	s.askForEver(t)
	return s
}

// serve starts an endpoint of web, and returns its address.
func (s *site) serve(t testing.TB) string {
	end := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("web"))
	s.ends = append(s.ends, end)
	return end.Addr.String()
}

// askForEver has one client after the other come to web until the test ends: what an endpoint does is known by clients only.
func (s *site) askForEver(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	clients.Go(func() {
		for ctx.Err() == nil {
			_, _ = proxytest.AskTCP(s.web) // it may find no endpoint: that is what some tests are about
			select {
			case <-time.After(50 * time.Millisecond): // a few clients a second, and no load
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		clients.Wait()
	})
}

const verdict = `document.querySelector("#verdict > span").textContent`

func contains(parts ...string) func(string) bool {
	return func(s string) bool {
		for _, part := range parts {
			if !strings.Contains(s, part) {
				return false
			}
		}
		return true
	}
}

// TestInABrowser has one node and one browser for all of its parts.
func TestInABrowser(t *testing.T) {
	browser := browsertest.Browse(t)
	s := start(t)
	t.Run("each fault is the first sentence until it is mended", func(t *testing.T) { s.testFaults(t, browser) })
	t.Run("filter, sort and pages", func(t *testing.T) { s.testTable(t, browser) })
	t.Run("the keyboard is enough", func(t *testing.T) { s.testKeyboard(t, browser) })
	t.Run("JavaScript is not needed", func(t *testing.T) { s.testWithoutScript(t, browser) })
	t.Run("text is legible, dark and light, wide and narrow", func(t *testing.T) { s.testLooks(t, browser) })
	t.Run("hostile names do nothing", func(t *testing.T) { s.testHostile(t, browser) })
	t.Run("a viewer too many is told to reload by hand", func(t *testing.T) { s.testTooMany(t, browser) })
	t.Run("the page can be paused", func(t *testing.T) { s.testPause(t, browser) })
}

// testFaults makes four faults, one after the other, and looks at a page that stays open.
func (s *site) testFaults(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url)
	b.Await(verdict, contains("All is well."), "a node that is well")
	b.Shoot(picture("well"))
	spare := fmt.Sprintf("service-%03d", 0)
	var port string
	for _, fault := range []struct {
		name        string
		begin, mend func()
		sentence    []string
	}{
		{"broken-record", func() {
			s.put(t, registry.SpecsPrefix+"web", `{"kind":"Service","apiVersion":"v1beta1","id":"web","port":808000}`)
		}, func() { s.putService(t, "web", s.web.Port()) }, []string{registry.SpecsPrefix + "web", "is refused", "808000"}},
		{"dead-endpoint", func() { s.ends[1].Close() }, func() {
			s.ends[1] = proxytest.ServeTCP(s.all, s.ends[1].Addr.String(), proxytest.Identify("web"))
		}, []string{s.ends[1].Addr.String(), "default/web", "does not answer since"}},
		{"conflict", func() {
			value, err := s.kv.Get(t.Context(), registry.SpecsPrefix+spare)
			if err != nil || len(value.Kvs) != 1 {
				t.Fatal(value, err)
			}
			port = string(value.Kvs[0].Value)
			s.put(t, registry.SpecsPrefix+"rival", port)
		}, func() {
			if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix+"rival"); err != nil {
				t.Fatal(err)
			}
		}, []string{"default/rival waits for tcp port", "default/" + spare + " has"}},
		{"etcd-away", s.etcd.Kill, func() { s.etcd.Start(t) }, []string{"etcd cannot be read since"}},
	} {
		began := time.Now()
		fault.begin()
		b.Await(verdict, contains(fault.sentence...), fault.name)
		named := time.Since(began)
		b.Shoot(picture(fault.name))
		if fault.name == "dead-endpoint" { // docs/pictures/status.png is a copy of this
			b.Do(browsertest.Command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 960, Height: 460, DeviceScaleFactor: 1}))
			b.ShootWindow(filepath.Join("..", "..", "..", "bin", "status.png"))
			b.Do(browsertest.Command(emulation.ClearDeviceMetricsOverride, cdp.Empty{}))
		}
		began = time.Now()
		fault.mend()
		b.Await(verdict, contains("All is well."), "the end of "+fault.name)
		t.Logf("%s: named after %v, gone %v after it was mended", fault.name, named.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
	}
}

// heads are the ports of the rows that a tab shows.
const heads = `[...document.querySelectorAll("#services th")].map(e => e.textContent).join()`

const names = `[...document.querySelectorAll("#services td:nth-child(2) a")].map(e => e.textContent).join()`

const pager = `document.querySelector("#pager span").textContent`

func (s *site) testTable(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url)
	b.Await(pager, contains("1–100 of 130"), "the first page")
	b.Do(chromedp.Click(chromedp.CSS(`#pager a[rel=next]`)))
	b.Await(pager, contains("101–130 of 130"), "the second page")
	b.Do(chromedp.SendKeys(chromedp.CSS("#q"), "service-07"+kb.Enter))
	b.Await(pager, contains("1–10 of 10"), "ten services that match")
	b.Do(chromedp.Click(chromedp.CSS(`thead th:nth-child(2) a`)))
	b.Await(names, func(s string) bool { return strings.HasPrefix(s, "default/service-070,default/service-071") }, "the order of names")
	b.Do(chromedp.Click(chromedp.CSS(`thead th:nth-child(2) a`)))
	b.Await(names, func(s string) bool { return strings.HasPrefix(s, "default/service-079,default/service-078") }, "the reverse of it")
	if got := b.Eval(`document.querySelector("thead [aria-sort]").textContent`); got != "Service" {
		t.Errorf("the sorted column is said to be %q", got)
	}
	b.Do(chromedp.SetValue(chromedp.CSS("#q"), "web"), chromedp.Submit(chromedp.CSS("#q")))
	b.Await(pager, contains("1–1 of 1"), "one service that matches")
	b.Await(`document.querySelector("#services td:nth-child(5)").textContent`, func(s string) bool { return s != "0" && s != "–" }, "the rate of new clients")
	b.Do(chromedp.Click(chromedp.CSS(`#services td a`)))
	b.Await(`document.querySelector("h1").textContent`, contains("default/web"), "the page of the service")
	b.Await(`document.querySelectorAll("#sparklines polyline").length`, contains("4"), "lines that go on by themselves")
	b.Await(`document.querySelector("#endings").textContent`, contains("endpoint_finished"), "the last endings")
	b.Shoot(picture("service"))
}

// testKeyboard uses Tab, Enter and letters only.
func (s *site) testKeyboard(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url)
	const focus = `document.activeElement.textContent.trim()`
	const outline = `getComputedStyle(document.activeElement).outlineStyle + " " + parseFloat(getComputedStyle(document.activeElement).outlineWidth)`
	b.Await(pager, contains("1–100 of 130"), "the first page")
	b.Press(kb.Tab)
	if got := b.Eval(focus); got != "Skip to content" {
		t.Errorf("the first Tab leads to %q", got)
	}
	b.Press(kb.Enter)
	b.Await(`document.activeElement.id + location.hash`, contains("main#main"), "the skip link")
	tabTo := func(what, where string) {
		t.Helper()
		for range 300 {
			b.Press(kb.Tab)
			if b.Eval(where) == "true" {
				if got := b.Eval(outline); got != "solid 3" {
					t.Errorf("at %s the focus is seen as %q", what, got)
				}
				return
			}
		}
		t.Fatalf("300 times Tab do not lead to %s", what)
	}
	tabTo("the filter", `document.activeElement.id === "q"`)
	b.Press("s", "e", "r", "v", kb.Enter)
	b.Await(pager, contains("1–100 of 129"), "services that match")
	tabTo("the column of services", `document.activeElement.textContent === "Service" && document.activeElement.closest("thead") !== null`)
	b.Press(kb.Enter)
	b.Await(names, func(s string) bool { return strings.HasPrefix(s, "default/service-000,") }, "the order of names")
	tabTo("the next page", `document.activeElement.textContent === "Next"`)
	b.Press(kb.Enter)
	b.Await(pager, contains("101–129 of 129"), "the second page")
	tabTo("a service", `document.activeElement.textContent.startsWith("default/service-1")`)
	held := b.Eval(focus)
	b.Await(`document.getElementById("live").textContent`, contains("Live"), "a live page")
	at := b.Eval(`document.getElementById("at").textContent`)
	b.Await(`document.getElementById("at").textContent`, func(s string) bool { return s != at }, "a change")
	if got := b.Eval(focus); got != held {
		t.Errorf("after a change the focus is at %q; it was at %q", got, held)
	}
	b.Press(kb.Enter)
	b.Await(`document.querySelector("h1").textContent`, contains(held), "the page of the service")
}

// testWithoutScript follows links of pages whose scripts do not run.
func (s *site) testWithoutScript(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url, browsertest.Command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	see := func(css string, want ...string) {
		t.Helper()
		text := browsertest.Get(b, chromedp.Text(chromedp.CSS(css)))
		if !contains(want...)(text) {
			t.Errorf("%s says %q; want %q", css, text, want)
		}
	}
	see("#verdict", "All is well.")
	see("#pager", "1–100 of 130")
	see("#live", "As of")
	b.Do(chromedp.Click(chromedp.CSS(`#pager a[rel=next]`)), chromedp.WaitVisible(chromedp.CSS(`#pager a[rel=prev]`)))
	see("#pager", "101–130 of 130")
	b.Do(chromedp.SetValue(chromedp.CSS("#q"), "web"), chromedp.Click(chromedp.CSS("form button")), chromedp.WaitNotPresent(chromedp.CSS(`#pager a[rel=prev]`)))
	see("#services", "default/web")
	b.Do(chromedp.Click(chromedp.CSS("#services td a")), chromedp.WaitVisible(chromedp.CSS("#record")))
	see("#record", `"port"`)
	b.Do(chromedp.Click(chromedp.CSS(`nav a[href="/status/endings"]`)), chromedp.WaitVisible(chromedp.CSS("#endings")))
	see("#endings", "endpoint_finished")
	if b.Eval(`document.getElementById("pause").hidden`) != "true" {
		t.Error("there is a button that does nothing")
	}
}

// contrast gives the lowest contrast of a text with what is behind it (WCAG 2.2, 1.4.3), and where that is.
const contrast = `(() => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126*r + 0.7152*g + 0.0722*b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
  let least = 99, where = "";
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest("svg")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) { least = ratio; where = e.outerHTML.slice(0, 80); }
  }
  return least >= 4.5 ? "ok" : least.toFixed(2) + " at " + where;
})()`

// testLooks looks at both pages in both colours, and on a telephone.
func (s *site) testLooks(t *testing.T, browser context.Context) {
	s.put(t, registry.SpecsPrefix+"rival", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"x","port":%d}`, s.web.Port()))
	for _, scheme := range []string{"light", "dark"} {
		for name, path := range map[string]string{"overview": "/", "service": "/status/service?name=default%2Fweb"} {
			b := browsertest.Open(t, browser, s.url+path, browsertest.Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			}))
			b.Await(verdict, contains("default/rival waits"), "a problem")
			if got := b.Eval(contrast); got != "ok" {
				t.Errorf("%s, %s: the contrast of text is %s", name, scheme, got)
			}
			b.Shoot(picture(name + "-" + scheme))
			b.Do(browsertest.Command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 2, Mobile: true}))
			b.Await(`document.documentElement.scrollWidth <= 390`, contains("true"), "a page as narrow as the screen")
			b.Shoot(picture(name + "-" + scheme + "-narrow"))
		}
	}
	if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix+"rival"); err != nil {
		t.Fatal(err)
	}
}

// testHostile looks at records that others wrote to break the page.
func (s *site) testHostile(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url)
	const attack = `<img src=x onerror="document.title=1"><script>document.title=1<|script>`
	s.put(t, registry.SpecsPrefix+attack, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"x","port":%d}`, s.web.Port()))
	s.put(t, registry.SpecsPrefix+"x"+attack, `<script>document.title=1</script>`)
	b.Await(`document.body.textContent`, contains("waits for", `<img src=x onerror=`, "is refused"), "both records on a page that is live")
	b.Do(chromedp.Navigate(s.url + "/?q=" + "%22%3E%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E"))
	b.Await(`document.getElementById("q").value`, contains("<script>"), "the filter")
	b.Do(chromedp.Navigate(s.url + "/status/service?name=default%2F%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D1%22%3E%3Cscript%3Edocument.title%3D1%3C%7Cscript%3E"))
	b.Await(`document.querySelector("h1").textContent`, contains("<img src=x"), "the page of the service")
	if got := b.Eval(`document.title + document.images.length + document.scripts.length`); !strings.HasSuffix(got, "01") || strings.HasPrefix(got, "1") && !strings.Contains(got, "problem") {
		t.Errorf("title, images and scripts are %q", got)
	}
	for _, name := range []string{attack, "x" + attack} {
		if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix+name); err != nil {
			t.Fatal(err)
		}
	}
}

// testTooMany holds all streams that there may be, and then one less.
func (s *site) testTooMany(t *testing.T, browser context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := 0
	var bodies []*http.Response
	for range 100 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/status/events?of=/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, answer)
		if answer.StatusCode != http.StatusOK {
			break
		}
		held++
	}
	if held == 0 || held > 8 {
		t.Errorf("%d streams may be open; want a few, and 8 at most", held)
	}
	b := browsertest.Open(t, browser, s.url)
	b.Await(`document.getElementById("live").textContent`, contains("Too many viewers: reload by hand"), "the page that says so")
	cancel()
	for _, answer := range bodies {
		answer.Body.Close()
	}
	b.Await(`(document.getElementById("live").textContent.startsWith("Live") || document.getElementById("pause").click(), document.getElementById("live").textContent)`,
		contains("Live"), "a live page when somebody has left")
}

func (s *site) testPause(t *testing.T, browser context.Context) {
	b := browsertest.Open(t, browser, s.url)
	b.Await(`document.getElementById("live").textContent`, contains("Live"), "a live page")
	b.Do(chromedp.Click(chromedp.CSS("#pause")))
	b.Await(`document.getElementById("live").textContent + document.getElementById("pause").textContent`, contains("Paused", "Go live"), "a page that stands still")
	b.Do(chromedp.Click(chromedp.CSS("#pause")))
	at := b.Eval(`document.getElementById("at").textContent`)
	b.Await(`document.getElementById("at").textContent`, func(s string) bool { return s != at }, "a page that goes on")
}
