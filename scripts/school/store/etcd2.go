package store

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"kubeproxy/internal/etcdv2"
	"kubeproxy/internal/process"
)

// An etcd2 is records in an etcd 2, which is a part of the school: kube-proxy v0.4 knows no other registry. There are no transactions.
type etcd2 struct {
	data    *etcdv2.Server
	address string
	told    string       // the address that the program is told: its own, or one of a gateway before it
	server  *http.Server // nil: it does not run
}

func newEtcd2(low, high uint16) (*etcd2, error) {
	port, err := process.FreePorts(low, high, 1)
	if err != nil {
		return nil, err
	}
	e := &etcd2{data: etcdv2.New(), address: fmt.Sprintf("127.0.0.1:%d", port)}
	e.told = e.address
	return e, e.Start()
}

func (e *etcd2) Flags() []string             { return []string{"-etcd_servers=http://" + e.told} }
func (e *etcd2) Address() string             { return e.address }
func (e *etcd2) LeadTo(address string)       { e.told = address }
func (e *etcd2) Put(key, value string) error { e.data.Put(prefix+key, value); return nil }
func (e *etcd2) Delete(key string) error     { e.data.Delete(prefix + key); return nil }
func (e *etcd2) PutByHand(key, value string) string {
	return "curl -X PUT --data-urlencode " + Quoted("value="+value) + " " + e.url(key)
}
func (e *etcd2) DeleteByHand(key string) string { return "curl -X DELETE " + e.url(key) }
func (e *etcd2) Pause()                         { e.data.Silence() }
func (e *etcd2) Resume()                        { e.data.Resume() }
func (e *etcd2) Wipe() error                    { e.data.Wipe(); return nil }
func (e *etcd2) url(key string) string          { return "http://" + e.address + "/v2/keys" + prefix + key }

// ByHand implements Server. No command can do it: the server is no process of its own.
func (e *etcd2) ByHand(Fault) string { return ": only the school can do this to its etcd 2" }

// Start serves again. An etcd that starts remembers no events.
func (e *etcd2) Start() error {
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		return err
	}
	e.data.Forget()
	e.server = &http.Server{Handler: e.data, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = e.server.Serve(l) }() // until it is closed
	return nil
}

// Kill ends all connections.
func (e *etcd2) Kill() {
	e.data.Resume()
	e.server.Close()
}

func (e *etcd2) Close() { e.Kill() }
