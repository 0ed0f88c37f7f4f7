package apisource

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/internal/apiserver"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// bigList answers the list of so many services as a v1 does, in pages of 500, over a real connection.
func bigList(b *testing.B, n int) string {
	var pages []string
	for from := 0; from < n; from += 500 {
		var items []string
		for i := from; i < from+500; i++ {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"service-%05d","namespace":"default","uid":"7dc8a68b-f2e1-45db-a785-0c92a93%05d","resourceVersion":"%d","creationTimestamp":"2026-11-22T12:36:30Z",`+
				`"managedFields":[{"manager":"curl","operation":"Update","apiVersion":"v1","time":"2026-11-22T12:36:30Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":8081,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]},`+
				`"spec":{"ports":[{"protocol":"TCP","port":%d,"targetPort":80}],"selector":{"app":"web"},"clusterIP":"10.96.214.74","clusterIPs":["10.96.214.74"],"type":"ClusterIP","sessionAffinity":"None","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{}}}`,
				i, i, 100+i, 1000+i))
		}
		after := ""
		if from+500 < n {
			after = fmt.Sprint(from + 500)
		}
		pages = append(pages, fmt.Sprintf(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`, 200+n, after, strings.Join(items, ",")))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from int
		fmt.Sscan(r.URL.Query().Get("continue"), &from)
		_, _ = io.WriteString(w, pages[from/500]) // the client has gone
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// BenchmarkFirstList10000 reads 10,000 services of 900 bytes from a v1 for the first time, and decodes them.
func BenchmarkFirstList10000(b *testing.B) {
	benchmarkList(b, func() *records.State { return records.New(decode.Decoder{}) })
}

// BenchmarkUnchangedList10000 reads them again: the resync of a registry in which nothing has changed.
func BenchmarkUnchangedList10000(b *testing.B) {
	state := records.New(decode.Decoder{})
	benchmarkList(b, func() *records.State { return state })
}

func benchmarkList(b *testing.B, begin func() *records.State) {
	cfg, err := Config{Server: bigList(b, 10000)}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	c, err := newClient(&cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	d := dialect{version: "v1"}
	p := d.core("services", collection{"Service", "v1", registry.SpecsPrefix})
	b.ReportAllocs()
	for b.Loop() {
		state := begin()
		l, err := c.list(b.Context(), &p, state.NewList)
		if err != nil {
			b.Fatal(err)
		}
		state.Merge(l.list, int64(l.version), nil, 0)
		var st config.Status
		if state.Describe(&st, time.Now()); state.Len() != 10000 || st.Rejected > 0 {
			b.Fatalf("%d records", state.Len())
		}
	}
}

// BenchmarkChangeToUpdate changes one of 100 services in a server, and waits for the Update that tells of it. The server, which
// is one in memory, and the network of this machine are in it.
func BenchmarkChangeToUpdate(b *testing.B) {
	server := apiserver.New(apiserver.V1)
	for i := range 100 {
		server.PutService("default", fmt.Sprintf("service-%05d", i), 1000+i)
	}
	listening := httptest.NewServer(server)
	defer listening.Close()
	s, err := New(Config{Server: listening.URL})
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan registry.Update)
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx, out) }) // returns nil
	defer running.Wait()
	defer stop()
	if u := <-out; len(u.Services) != 100 {
		b.Fatalf("%d services", len(u.Services))
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		server.PutService("default", "service-00000", 1+len(took)%60000) // never the port that it has
		for u := range out {
			if len(u.Services) > 0 {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	recordstest.ReportLatencies(b, took)
}
