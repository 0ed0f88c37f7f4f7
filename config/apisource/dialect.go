package apisource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A dialect is how one server is asked: which resources have the records, and below which paths they are.
type dialect struct {
	server    string // what it says it is, for the log; empty if it does not
	version   string // of the API
	resources []path
}

// A path is where one resource is listed and watched.
type path struct {
	collection
	name     string // as an operator grants it
	list     string
	watch    string
	selector string
	paged    bool // lists come in pages, and watches have bookmarks and an end: v1
}

// What is selected where slices are served. Such a server knows the labels, and others need not know the syntax: services that
// belong to another proxy, and the slices of headless services, which have no port of their own.
const (
	selectServices = "!service.kubernetes.io/service-proxy-name"
	selectSlices   = "!service.kubernetes.io/headless"
)

// discover asks a server what it is. Each server of v0.4 to v0.20 has v1beta1, which v0.4.4 does not say, and each since 1.0 v1.
// Who may not ask is told nothing; but permissions came with v1, and slices with them.
func (c *client) discover(ctx context.Context) (dialect, error) {
	var d dialect
	var about struct{ GitVersion string }
	err := c.document(ctx, "/version", &about)
	if err != nil && slices.Contains([]Cause{Broken, Insecure, Silent}, causeOf(err)) { // then no other question is answered either
		return d, fmt.Errorf("ask for its version: %w", err)
	}
	d.server = about.GitVersion
	if d.version, err = c.apiVersion(ctx); err != nil {
		return d, err
	}
	if d.version != "v1" {
		d.resources = []path{
			d.old("services", collection{"Service", d.version, registry.SpecsPrefix}),
			d.old("endpoints", collection{"Endpoints", d.version, registry.EndpointsPrefix}),
		}
		return d, nil
	}
	services := d.core("services", collection{"Service", "v1", registry.SpecsPrefix})
	sliced, err := c.hasSlices(ctx)
	switch {
	case err != nil:
		return d, err
	case !sliced:
		d.resources = []path{services, d.core("endpoints", collection{"Endpoints", "v1", registry.EndpointsPrefix})}
		return d, nil
	}
	services.selector = selectServices
	at := slicesGroup + "/endpointslices"
	d.resources = []path{services, {
		collection: collection{"EndpointSlice", "discovery.k8s.io/v1", registry.EndpointSlicesPrefix},
		name:       "endpointslices", list: at, watch: at, selector: selectSlices, paged: true,
	}}
	return d, nil
}

const slicesGroup = "/apis/discovery.k8s.io/v1"

// hasSlices reports whether a server of v1 has EndpointSlices, which Kubernetes has since 1.21.
func (c *client) hasSlices(ctx context.Context) (bool, error) {
	switch err := c.document(ctx, slicesGroup, new(struct{})); {
	case err == nil, isStatus(err, http.StatusForbidden):
		return true, nil
	case isStatus(err, http.StatusNotFound):
		return false, nil
	default:
		return false, fmt.Errorf("ask for %s: %w", slicesGroup, err)
	}
}

// apiVersion finds out which version of the API to use.
func (c *client) apiVersion(ctx context.Context) (string, error) {
	if c.cfg.APIVersion != "" {
		return c.cfg.APIVersion, nil
	}
	var api struct{ Versions []string }
	switch err := c.document(ctx, "/api", &api); {
	case isStatus(err, http.StatusNotFound):
		return "v1beta1", nil
	case isStatus(err, http.StatusForbidden):
		return "v1", nil
	case err != nil:
		return "", fmt.Errorf("ask for API versions: %w", err)
	}
	for _, v := range []string{"v1", "v1beta1", "v1beta2"} {
		if slices.Contains(api.Versions, v) {
			return v, nil
		}
	}
	return "", remote.Because(Unable, errors.New("none of its API versions is v1 or v1beta1: "+registry.Quote(fmt.Sprint(api.Versions))))
}

// old is a resource of v1beta1 and v1beta2.
func (d *dialect) old(name string, c collection) path {
	base := "/api/" + d.version
	return path{collection: c, name: name, list: base + "/" + name, watch: base + "/watch/" + name}
}

// core is a resource of v1's core group.
func (d *dialect) core(name string, c collection) path {
	at := "/api/v1/" + name
	return path{collection: c, name: name, list: at, watch: at, paged: true}
}

// listPath is what a page of a list is asked for with: after is where the page before ended, empty for the first one.
func (p *path) listPath(limit int, after string) string {
	if !p.paged {
		return p.list + "?labels=" // v0.4's own question
	}
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if after != "" {
		q.Set("continue", after)
	}
	return p.list + "?" + p.selected(q)
}

// watchPath is what all changes after a version are asked for with. timeout is when the server is to end the watch.
func (p *path) watchPath(from version, timeout time.Duration) string {
	if !p.paged {
		return p.watch + "?fields=&labels=&resourceVersion=" + from.String()
	}
	return p.watch + "?" + p.selected(url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from.String()},
		"timeoutSeconds": {strconv.Itoa(int(timeout / time.Second))},
	})
}

func (p *path) selected(q url.Values) string {
	if p.selector != "" {
		q.Set("labelSelector", p.selector)
	}
	return q.Encode()
}

// watchTimeout is for how long a watch is asked for: five to ten minutes, so that the watches of a fleet, which may have begun at one
// moment, do not all end at one.
func watchTimeout() time.Duration { return 5*time.Minute + rand.N(5*time.Minute) }
