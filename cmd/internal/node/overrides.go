package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/config/statefile"
	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
)

// What operators want in place of the records survives the process: a successor gets it with the listeners, and a file in -state_dir has it for a
// restart.

// overridesName is the name of the file.
const overridesName = "kube-proxy.overrides"

// maxOverridesFile bounds what is read: a node has some thousand overrides at most.
const maxOverridesFile = 4 << 20

// A keeper keeps overrides.
type keeper struct {
	dir      string // "": there is no file
	balancer *balance.LoadBalancerRR

	saving sync.Mutex // one save at a time
}

func (k *keeper) path() string { return filepath.Join(k.dir, overridesName) }

// save writes the overrides that are in force.
func (k *keeper) save() error {
	if k.dir == "" {
		return control.ErrNotKept
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	text, err := k.text()
	if err != nil {
		return err
	}
	return statefile.Replace(k.path(), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (k *keeper) text() ([]byte, error) {
	return json.Marshal(control.NewOverrides(k.balancer.Overrides()))
}

// load puts those of the file in force, before the first batch. One that cannot be used is left out.
func (k *keeper) load() {
	if k.dir == "" {
		return
	}
	info, err := os.Lstat(k.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil && (!info.Mode().IsRegular() || info.Size() > maxOverridesFile):
		err = fmt.Errorf("%s is not a regular file of at most %d bytes", k.path(), maxOverridesFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(k.path())
	}
	if err == nil {
		err = k.restore(text)
	}
	if err != nil {
		glog.Errorf("overrides of before the restart: %v", err)
	}
}

// restore puts overrides in force, before the first batch. One that cannot be used is left out; the error names the first.
func (k *keeper) restore(text []byte) error {
	var all []control.Override
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	var restored []balance.Override
	var failed error
	for i := range all {
		o, ok, err := all[i].Parse()
		if err != nil && failed == nil {
			failed = err
		}
		if ok {
			restored = append(restored, o)
		}
	}
	k.balancer.RestoreOverrides(restored)
	if len(restored) > 0 {
		glog.Infof("%d overrides of operators are in force again", len(restored))
	}
	return failed
}

// item is what a successor gets; ok is false if there is nothing to tell it: then one that does not know of overrides can take over.
func (k *keeper) item() (item takeover.Item, ok bool, err error) {
	if len(k.balancer.Overrides()) == 0 {
		return item, false, nil
	}
	text, err := k.text()
	return takeover.Item{Kind: kindOverrides, Body: text}, true, err
}
