//go:build js

// Command page is the part of docs/page.md that computes: one registry, a few nodes, four endpoints and their clients, compiled to
// WebAssembly. The nodes are the product: the packages registry, config, records, proxy and portable as they are. Around them the
// network is that of package net on js, which is in memory, and the time is that of testing/synctest, which moves when the page says so.
//
//	page.js ──orders, a time to pass──▶ world ─▶ store ─▶ source ─▶ config.Mux ─▶ proxy.Proxier ─▶ portable engine
//	        ◀──state, events, log lines──┘                              clients ─▶ listeners ─▶ endpoints
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"syscall/js"
	"testing"
	"testing/synctest"
	"time"
)

// A tick is what the page asks for: orders that are carried out at once, and a time that passes after them.
type tick struct {
	orders string
	pass   time.Duration
}

// ticks is made outside the bubble. Whoever waits for it is not durably blocked, so no time passes meanwhile.
var ticks = make(chan tick, 1)

func main() {
	page := js.Global().Get("kubeproxyPage")
	testing.Init() // testing/synctest wants a test; its time limit would be one of fake time
	flags := []string{"-test.timeout=0", "-logtostderr", "-v=3"}
	if err := flag.CommandLine.Parse(flags); err != nil {
		panic(err)
	}
	page.Set("tick", js.FuncOf(func(_ js.Value, args []js.Value) any {
		t := tick{orders: args[0].String(), pass: time.Duration(args[1].Float() * float64(time.Millisecond))}
		go func() { ticks <- t }() // a call from JavaScript may not wait
		return nil
	}))
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "page", F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, page) })
		},
	}}, nil, nil)
}

// play makes a world, and moves it tick by tick until the page is closed.
func play(t *testing.T, page js.Value) {
	w := newWorld(page.Get("nodes").Int())
	w.start(t.Context())
	synctest.Wait()
	page.Call("ready", w.snapshot())
	for tick := range ticks {
		w.obey(tick.orders)
		synctest.Wait()
		if tick.pass > 0 {
			time.Sleep(tick.pass)
			synctest.Wait()
		}
		page.Call("done", w.snapshot())
	}
}

// An order is what the reader does.
type order struct {
	Do string `json:"do"` // write, store, host, tcp, udp

	Records []record `json:"records"` // write: all in one transaction
	State   string   `json:"state"`   // store: up, away; host: up, refuses, silent, slow
	Host    string   `json:"host"`    // host: its name
	Node    int      `json:"node"`    // tcp, udp: which node the client goes to, from 1
	Port    int      `json:"port"`    // tcp, udp
	Hold    int      `json:"hold"`    // tcp: milliseconds for which the client stays after its answer
	Client  string   `json:"client"`  // udp: whose datagram; the client keeps its socket
}

// A record is a key of the registry and its new value. No value deletes the key.
type record struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// obey carries out the orders of one moment.
func (w *world) obey(text string) {
	var orders []order
	if err := json.Unmarshal([]byte(text), &orders); err != nil {
		w.event("error", "the page sent orders that are none: %v", err)
		return
	}
	for _, o := range orders {
		if err := w.carryOut(o); err != nil {
			w.event("error", "%v", err)
		}
	}
}

func (w *world) carryOut(o order) error {
	switch o.Do {
	case "write":
		return w.store.write(o.Records)
	case "store":
		return w.store.set(o.State)
	case "host":
		for _, h := range w.hosts {
			if h.name == o.Host {
				return h.set(o.State)
			}
		}
		return fmt.Errorf("there is no endpoint called %q", o.Host)
	case "tcp", "udp":
		if o.Node < 1 || o.Node > len(w.nodes) {
			return fmt.Errorf("there is no node %d", o.Node)
		}
		if o.Port < 1 || o.Port > 65535 {
			return fmt.Errorf("%d is no port: ports are 1 to 65535", o.Port)
		}
		if o.Do == "tcp" {
			w.connect(w.nodes[o.Node-1], o.Port, time.Duration(o.Hold)*time.Millisecond)
			return nil
		}
		return w.send(w.nodes[o.Node-1], o.Port, o.Client)
	}
	return fmt.Errorf("%q is nothing that the page can do", o.Do)
}
