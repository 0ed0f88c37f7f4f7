package etcdsource

import (
	"fmt"
	"strings"
	"testing"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
)

func TestRejectedKeysAreListedUntilTheyAreMended(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), ends("b"), `{"endpoints":"no list"}`, spec("x/y/z"), port(1), spec("a"), "{")
	f := follow(t, quick(etcd.URL()))
	list := func(keys int) string {
		t.Helper()
		st := f.awaitStatus(t, "so many keys", func(st config.Status) bool { return st.Ready && len(st.Rejections) == keys })
		if st.Rejected != keys {
			t.Errorf("%d are counted and %d listed", st.Rejected, keys)
		}
		var lines []string
		for _, r := range st.Rejections {
			reason, _, _ := strings.Cut(r.Reason, ":")
			lines = append(lines, fmt.Sprintf("%s %v@%d %s", r.Key, r.Kind, r.Revision, reason))
		}
		return strings.Join(lines, "\n")
	}
	want := "/registry/services/endpoints/b Endpoints@3 endpoints holds a string where an array is wanted\n" +
		"/registry/services/specs/a Service@5 not valid JSON\n" +
		"/registry/services/specs/x/y/z Service@4 key has more than two segments below /registry/services/specs/"
	if got := list(3); got != want {
		t.Errorf("listed:\n%s\nwant:\n%s", got, want)
	}
	before := f.source.Status().Rejections
	put(t, c, spec("a"), port(2))
	del(t, c, spec("x/y/z"))
	if got := list(1); !strings.HasPrefix(want, got) {
		t.Errorf("then listed:\n%s\nwant the first of\n%s", got, want)
	}
	if len(before) != 3 || before[1].Key != spec("a") {
		t.Errorf("what was read before has changed: %v", before)
	}
	put(t, c, ends("b"), addrs("10.0.0.1:1"))
	list(0)
}

// One of v0.4 whose records are all of another format.
func TestARegistryWithoutAUsableKeyTakesOneLine(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	for i := range 30 {
		put(t, c, spec(fmt.Sprint("default/a", i)), "k8s\x00\n\x0b\n\x02v1\x12\x07Service")
	}
	log := logSince(t)
	f := follow(t, quick(c.Endpoints()[0]))
	st := f.awaitStatus(t, "30 rejected keys", func(st config.Status) bool { return st.Rejected == 30 })
	if st.Services+st.Endpoints != 0 {
		t.Errorf("%+v; want no object", st)
	}
	f.await(t, " | ")
	put(t, c, spec("b"), port(1))
	f.await(t, "b:1 | ")
	if text := log(); strings.Count(text, "can be used") != 1 || strings.Contains(text, "bad value") || !strings.Contains(text, "none of the 30 keys can be used, for example \"/registry/services/") {
		t.Errorf("the log:\n%s", text)
	}
}
