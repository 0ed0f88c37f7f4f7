package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
)

// What a captured value says, as far as this test has to know.
type capturedBody struct {
	Port      uint16   `json:"port"`
	Protocol  string   `json:"protocol"`
	Endpoints []string `json:"endpoints"`
}

// A world is what the captured records written so far promise.
type world struct {
	services  map[string]capturedBody
	endpoints map[string][]string
}

// TestCapturedRecordsAreServedAsTheyWereWritten puts what a v0.4.4 master wrote into an etcd of its
// own, in the order in which it wrote it, in a network that holds the addresses of the pods of the
// time. After each write every service is served as the records say.
func TestCapturedRecordsAreServedAsTheyWereWritten(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	for _, pod := range []string{"10.244.1.2", "10.244.1.3", "10.244.1.9", "10.244.2.2", "10.244.3.2"} {
		proxytest.MustRun(t, "ip", "addr", "add", pod+"/32", "dev", "lo")
		for _, port := range []string{"9376", "6379", "53"} {
			addr := net.JoinHostPort(pod, port)
			proxytest.ServeTCP(t, addr, func(conn *net.TCPConn) { fmt.Fprint(conn, addr) })
			proxytest.ServeUDP(t, addr, proxytest.IdentifyUDP(addr))
		}
	}
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	start(t, nil, "-etcd_servers="+etcd.URL(), "-bind_address=127.0.0.1", "-rr_random_start=false", "-v=3")

	put := func(w *world, c captured) {
		t.Helper()
		if _, err := client.Put(t.Context(), c.key(), string(c.value)); err != nil {
			t.Fatal(err)
		}
		var body capturedBody
		if err := json.Unmarshal(c.value, &body); err != nil {
			t.Fatal(err)
		}
		if c.kind == "service" {
			before, had := w.services[c.id]
			w.services[c.id] = body
			if had && before.Port != body.Port {
				proxytest.Eventually(t, func() bool { return closed(t, before) }, "%s moved: port %d closes", c.id, before.Port)
			}
		} else {
			w.endpoints[c.id] = body.Endpoints
		}
		w.holds(t, c.key())
	}
	remove := func(w *world, id string) {
		t.Helper()
		gone := w.services[id]
		for _, key := range []string{"/registry/services/specs/" + id, "/registry/services/endpoints/" + id} {
			if _, err := client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		delete(w.services, id)
		delete(w.endpoints, id)
		proxytest.Eventually(t, func() bool { return closed(t, gone) }, "%s was deleted: port %d closes", id, gone.Port)
		w.holds(t, "the delete of "+id)
	}

	for storage := range map[string]bool{"v1beta1": true, "v1beta2": true} {
		w := &world{make(map[string]capturedBody), make(map[string][]string)}
		for _, c := range capturedRecords(t) {
			if c.storage == storage {
				put(w, c)
			}
		}
		if storage == "v1beta1" { // the master never gave dns endpoints: here they are, in its format
			put(w, captured{storage, "endpoints", "dns",
				[]byte(`{"kind":"Endpoints","id":"dns","apiVersion":"v1beta1","endpoints":["10.244.1.2:53","10.244.2.2:53"]}`)})
		}
		for id := range w.services {
			remove(w, id)
		}
	}
}

// holds waits until every service is served as the records say: by its endpoints in turn, or by
// nobody.
func (w *world) holds(t *testing.T, after string) {
	t.Helper()
	for id, service := range w.services {
		want := w.endpoints[id]
		proxytest.Eventually(t, func() bool {
			if len(want) == 0 {
				return silent(t, service)
			}
			return inTurn(t, service, want)
		}, "after %s: %s on port %d is served by %q", after, id, service.Port, want)
	}
}

// inTurn reports whether the next clients are answered by all of want, in turn, twice.
func inTurn(t *testing.T, service capturedBody, want []string) bool {
	var got []string
	for range 2 * len(want) {
		answer, err := ask(t, service)
		if err != nil {
			return false
		}
		got = append(got, answer)
	}
	first := slices.Index(want, got[0])
	for i, answer := range got {
		if first < 0 || answer != want[(first+i)%len(want)] {
			return false
		}
	}
	return true
}

func isUDP(service capturedBody) bool { return strings.EqualFold(service.Protocol, "udp") }

// ask is one client of a service.
func ask(t *testing.T, service capturedBody) (string, error) {
	if isUDP(service) {
		client := proxytest.DialUDP(t, proxytest.On(service.Port))
		defer client.Close()
		answer, err := client.Try(time.Second)
		return answer.Name, err
	}
	return proxytest.AskTCP(proxytest.On(service.Port))
}

// silent reports whether the port is open and leads nowhere: a TCP client is reset, and a datagram,
// which is not refused, gets no answer.
func silent(t *testing.T, service capturedBody) bool {
	if isUDP(service) {
		return !closed(t, service)
	}
	answer, err := ask(t, service)
	return err != nil && answer == "" && !closed(t, service)
}

// closed reports whether the port has no listener. It does not try to listen there itself: the proxy may just be about to.
func closed(t *testing.T, service capturedBody) bool {
	if !isUDP(service) {
		return !proxytest.Listens(proxytest.On(service.Port))
	}
	sockets, err := os.ReadFile("/proc/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(sockets), fmt.Sprintf(" 0100007F:%04X ", service.Port)) // 127.0.0.1 and the port
}
