package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/registry"
)

func TestAFullDiskKillsTheMember(t *testing.T) {
	c, h := begin(t, 1)
	writing(t, c)
	inject(t, c, "full-disk", seed(1))
	lines := h.log()
	if last := lines[len(lines)-1]; strings.Contains(last, " 0 times") {
		t.Errorf("%s; want some deaths", last)
	}
}

func TestAnExceededQuotaRaisesAnAlarmThatEndsWithIt(t *testing.T) {
	c, h := begin(t, 1)
	refused := writing(t, c)
	inject(t, c, "quota", seed(1))
	if last := h.log()[0]; !strings.HasSuffix(last, "alarms: 1") || !refused(rpctypes.ErrNoSpace) {
		t.Errorf("%s; refused writes: %t; want one alarm, and writes refused for it", last, refused(rpctypes.ErrNoSpace))
	}
	write(t, c) // and now it takes them again
}

// writing writes until the test ends, whether etcd takes it or not. The func reports whether it was ever
// refused with this error.
func writing(t *testing.T, c Target) (refused func(error) bool) {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards errs
	var errs []error
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			time.Sleep(5 * time.Millisecond) // a restart replays all that was written
			_, err := client.Put(ctx, fmt.Sprintf("%sbig-%d", registry.SpecsPrefix, i%50), strings.Repeat("x", 10<<10))
			cancel()
			mu.Lock()
			if err != nil {
				errs = append(errs, err)
			}
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		_ = client.Close() // only tells that its context has ended
	})
	return func(target error) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, target) })
	}
}
