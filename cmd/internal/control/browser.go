package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/statuspage/files"
	"kubeproxy/internal/lograte"
	"kubeproxy/internal/ownersocket"
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// ActionPath is where the status page sends its form, if it may act.
const ActionPath = "/status/act"

// maxForm bounds the form.
const maxForm = 4 << 10

// A Browser lets people act on the node by the status page, with a token. What it does, and what it warns of, is what the control socket does.
//
// A page of another site cannot make the reader's browser act: each form holds the token, which no browser adds by itself as it does a cookie,
// and its Origin, which a browser sets and a page cannot (RFC 6454), must be this page.
type Browser struct {
	Node  Node
	Token func() (string, error) // asked for each form, so that it may change

	wrong lograte.Limiter[struct{}] // of lines about those who have no right to act
}

// ServeHTTP implements [http.Handler], for requests with the method POST.
func (b *Browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came, err := b.act(w, r)
	switch {
	case err != nil:
		status := http.StatusInternalServerError
		if f, ok := errors.AsType[failure](err); ok {
			status = f.status
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("nothing was done: " + err.Error() + "\n")) // who does not want to know need not
	case came.Warning != "" || came.Left > 0:
		files.SetHeaders(w.Header(), "text/html; charset=utf-8")
		_ = warned.Execute(w, came) // an error means that the reader has gone; the action is done
	default:
		http.Redirect(w, r, came.Back, http.StatusSeeOther)
	}
}

// An outcome is what came of a form.
type outcome struct {
	Done
	InForce []string // what operators have done to endpoints of this node
	Back    string   // the page that the form was on
}

// warned is the answer to a form that was not done in full, or not for as long as it says.
var warned = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>It was done, with a warning</title>
<link rel="stylesheet" href="/status/style.css"></head>
<body><main id="main"><h1>It was done</h1>
{{with .Left}}<p>{{if eq . 1}}1 client is left: it was{{else}}{{.}} clients are left: they were{{end}} still connecting.</p>
{{end}}{{with .Warning}}<p>Warning: {{.}}.</p>
{{end}}{{with .InForce}}<h2>In force on this node</h2>
<ul>{{range .}}<li>{{.}}</li>{{end}}</ul>
{{end}}<p>Do not reload this page: that would do it again.</p>
<p><a href="{{.Back}}">Back to the service</a></p></main></body>
</html>
`))

// act does what a form says.
func (b *Browser) act(w http.ResponseWriter, r *http.Request) (outcome, error) {
	if err := isOwnForm(r); err != nil {
		return outcome{}, b.refuse(r, err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return outcome{}, badRequest("the form cannot be read: %s", registry.Quote(err.Error()))
	}
	form := r.PostForm
	token, err := b.Token()
	if err != nil {
		glog.Errorf("-page_actions: %v", err)
		return outcome{}, unavailable(errors.New("the token cannot be read; the log says why"))
	}
	if given := form.Get("token"); !same(given, token) {
		return outcome{}, b.refuse(r, errors.New("the token is wrong"))
	}
	service, endpoint := form.Get("service"), form.Get("endpoint")
	if service == "" || endpoint == "" {
		return outcome{}, badRequest("name a service and an endpoint")
	}
	var answer any
	switch word := form.Get("word"); word {
	case "kill":
		answer, err = b.Node.kill(asked(r, Selection{Service: service, Endpoint: endpoint}))
	case "enable":
		answer, err = b.Node.enable(asked(r, Wish{Service: service, Endpoint: endpoint}))
	default:
		answer, err = b.Node.override(asked(r, Wish{Service: service, Endpoint: endpoint, Word: word, For: form.Get("for"), Force: form.Get("force") != ""}))
	}
	if err != nil {
		return outcome{}, err
	}
	done, _ := answer.(Done)  // kill has no more to say
	report := b.Node.Report() // asked also because the page that comes next could be as of before
	return outcome{done, report.Overrides, "/status/service?name=" + url.QueryEscape(service)}, nil
}

// refuse is about a form that its sender had no right to send.
func (b *Browser) refuse(r *http.Request, why error) error {
	if note, ok := b.wrong.Allow(struct{}{}); ok {
		glog.Warningf("-page_actions: a form from %s was refused: %v%s", r.RemoteAddr, why, note)
	}
	return failure{http.StatusForbidden, why}
}

// isOwnForm returns an error unless a request comes from a form of this page.
func isOwnForm(r *http.Request) error {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Host == "" || origin.Host != r.Host {
		return errors.New("it does not come from this page (Origin)")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return errors.New("it does not come from this page (Sec-Fetch-Site)")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return errors.New("it is no form")
	}
	return nil
}

// same compares secrets, in a time that tells nothing of them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// asked is the request by which the control socket is asked for something, from the page.
func asked(r *http.Request, wish any) *http.Request {
	body, err := json.Marshal(wish)
	if err != nil {
		panic(err) // wishes are made of texts
	}
	page := ownersocket.Peer{UID: balance.ByPage}
	request := r.Clone(context.WithValue(r.Context(), peerKey{}, page))
	request.Body = io.NopCloser(bytes.NewReader(body))
	return request
}
