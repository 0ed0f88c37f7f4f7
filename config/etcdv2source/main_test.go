package etcdv2source

import (
	"errors"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The log of the tests goes to files in a directory that is removed in the end: some tests read it.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "etcdv2source")
	if err == nil {
		err = errors.Join(flag.Set("log_dir", dir), flag.Set("stderrthreshold", "FATAL"))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(dir) // nothing depends on it
			os.Exit(status)
		}))
}
