package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/config/statefile"
	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
)

// What operators want in place of the records survives the process: a successor gets it with the listeners, and a file in -state_dir has it for a
// restart. The file follows each request before it is answered, and soon after what ends by itself: otherwise an override that has ended would be
// in force again after a crash.

// overridesName is the name of the file.
const overridesName = "kube-proxy.overrides"

// maxOverridesFile bounds what is read: a node has some thousand overrides at most.
const maxOverridesFile = 4 << 20

// saveAgain is how long after an error run tries again.
const saveAgain = 5 * time.Second

// A keeper keeps overrides. Make it with newKeeper.
type keeper struct {
	dir      string // "": there is no file
	balancer *balance.LoadBalancerRR
	wake     chan struct{} // capacity 1: full when the file may not say what is in force

	loading sync.Once

	saving sync.Mutex // one save at a time; guards the field below
	given  bool       // to a successor, whose file it is once it serves
}

func newKeeper(balancer *balance.LoadBalancerRR) *keeper {
	return &keeper{balancer: balancer, wake: make(chan struct{}, 1)}
}

func (k *keeper) path() string { return filepath.Join(k.dir, overridesName) }

// changed has run save the overrides. It waits for nothing, and may be called under the locks of the balancer.
func (k *keeper) changed() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run saves the overrides whenever one has ended by itself, from the first state in force until ctx ends.
func (k *keeper) run(ctx context.Context, serving <-chan struct{}) {
	if k.dir == "" {
		return
	}
	select {
	case <-serving: // until then the file is the predecessor's
	case <-ctx.Done():
		return
	}
	for running, failed := true, false; running; {
		var again <-chan time.Time
		if failed {
			again = time.After(saveAgain)
		}
		select {
		case <-k.wake:
		case <-again:
		case <-ctx.Done():
			if running = false; len(k.wake) == 0 && !failed {
				return
			}
		}
		err := k.save()
		if err != nil && !failed {
			glog.Errorf("a restart may put overrides in force again that have ended: %v; trying again every %v", err, saveAgain)
		}
		failed = err != nil
	}
}

// give stops all writes of the file: a successor is about to get the overrides, and writes the file once it serves.
func (k *keeper) give() {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.given = true
}

// takeBack ends give, for the take-over has failed.
func (k *keeper) takeBack() {
	k.saving.Lock()
	defer k.saving.Unlock()
	if k.given {
		k.given = false
		k.changed()
	}
}

// save writes the overrides that are in force. Where a successor takes over, that does.
func (k *keeper) save() error {
	if k.dir == "" {
		return control.ErrNotKept
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	if k.given {
		return nil
	}
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

// load puts those of the file in force, once, before operators are answered and before the first batch: save would replace them. One that cannot be used is
// left out.
func (k *keeper) load() {
	if k.dir != "" {
		k.loading.Do(k.loadFile)
	}
}

func (k *keeper) loadFile() {
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
