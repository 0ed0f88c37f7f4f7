package store

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kubeproxy/internal/process"
)

// An Etcd is records in an etcd of its own. They are written by etcd's JSON gateway, as programs may read them.
type Etcd struct {
	dir    string
	member *process.Etcd
	told   string // the address that the program is told: the member's, or one of a gateway before it
}

// FindEtcd finds the etcd that make school builds beside bin/school, or the system's.
func FindEtcd() (string, error) {
	own, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(own), "school-etcd")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", ErrNoEtcd
	}
	return path, nil
}

func newEtcd(path string, low, high uint16) (*Etcd, error) {
	dir, err := os.MkdirTemp("", "school-")
	if err != nil {
		return nil, err
	}
	e := &Etcd{dir: dir}
	if e.member, err = process.NewEtcd("etcd", filepath.Join(dir, "data"), dir, low, high); err == nil {
		e.member.Path = path
		err = e.member.Start()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	e.told = e.member.Client
	return e, nil
}

func (e *Etcd) Flags() []string       { return []string{"-etcd_servers=http://" + e.told} }
func (e *Etcd) Address() string       { return e.member.Client }
func (e *Etcd) LeadTo(address string) { e.told = address }
func (e *Etcd) Kill()                 { e.member.Kill() }
func (e *Etcd) Start() error          { return e.member.Start() }
func (e *Etcd) Pause()                { e.member.Pause() }
func (e *Etcd) Resume()               { e.member.Resume() }
func (e *Etcd) Wipe() error           { return os.RemoveAll(e.member.Data) }

// Close ends etcd, and deletes its data.
func (e *Etcd) Close() {
	e.member.Kill()
	os.RemoveAll(e.dir)
}

// ByHand implements Server.
func (e *Etcd) ByHand(fault Fault) string {
	switch fault {
	case Kill:
		return fmt.Sprint("kill -9 ", e.member.PID())
	case Pause:
		return fmt.Sprint("kill -STOP ", e.member.PID())
	case Resume:
		return fmt.Sprint("kill -CONT ", e.member.PID())
	case Wipe:
		return "rm -r " + e.member.Data
	}
	return fmt.Sprintf("%s --data-dir=%s --listen-client-urls=%s --advertise-client-urls=%[3]s", e.member.Path, e.member.Data, e.member.URL())
}

// A pair is a record as the gateway has it: key and value in base64.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

func pairOf(key, value string) pair {
	encode := base64.StdEncoding.EncodeToString
	return pair{encode([]byte(prefix + key)), encode([]byte(value))}
}

func (e *Etcd) Put(key, value string) error            { return e.post("put", pairOf(key, value)) }
func (e *Etcd) Delete(key string) error                { return e.post("deleterange", pairOf(key, "")) }
func (e *Etcd) PutByHand(key, value string) string     { return e.byHand("put", pairOf(key, value)) }
func (e *Etcd) DeleteByHand(key string) string         { return e.byHand("deleterange", pairOf(key, "")) }
func (e *Etcd) Transact(t Transaction) error           { return e.post("txn", t) }
func (e *Etcd) TransactionByHand(t Transaction) string { return e.byHand("txn", t) }

// A Transaction is records that are written in one step.
type Transaction struct {
	Success []operation `json:"success"`
}

type operation struct {
	RequestPut pair `json:"requestPut"`
}

// Put adds a record to the transaction.
func (t *Transaction) Put(key, value string) {
	t.Success = append(t.Success, operation{pairOf(key, value)})
}

func (e *Etcd) post(method string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Minute}
	response, err := client.Post(e.member.URL()+"/v3/kv/"+method, "application/json", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status says enough
		return fmt.Errorf("etcd: %s: %s: %q", method, response.Status, said)
	}
	return nil
}

func (e *Etcd) byHand(method string, request any) string {
	body, _ := json.Marshal(request) // strings can always be encoded
	return "curl -d " + Quoted(string(body)) + " " + e.member.URL() + "/v3/kv/" + method
}
