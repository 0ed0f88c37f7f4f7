package etcdv2source

import (
	"net/http"
	"strings"
	"testing"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdv2source/etcdv2test"
	"kubeproxy/config/records/recordstest"
)

// Each row is about the fake, and about a real etcd where -model.etcd names one with a v2 API.
func TestAMemberTellsWhetherItsV2StoreHasARegistry(t *testing.T) {
	const record, elsewhere = "/registry/services/specs/web", "/registry/pods/web"
	for name, test := range map[string]struct {
		key  string // that is written; "": none
		want bool
	}{
		"nothing was ever written": {"", false},
		"a record":                 {record, true},
		"a key of something else":  {elsewhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcds := map[string]string{"fake": etcdv2test.Start(t).URL}
			if *modelEtcd != "" {
				etcds["real"] = newReal(t).client
			}
			for etcd, url := range etcds {
				if test.key != "" {
					write(t, url, http.MethodPut, test.key, "value", recordstest.Port(1))
				}
				if got, err := hasRegistry(t, quick(url)); err != nil || got != test.want {
					t.Errorf("%s: %v, %v; want %v", etcd, got, err, test.want)
				}
			}
		})
	}
}

func TestAnEtcdWithoutTheV2APIHasNoRegistryInIt(t *testing.T) {
	if got, err := hasRegistry(t, quick(etcdtest.StartProcess(t).URL())); err != nil || got {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTheQuestionForTheV2StoreShowsThePassword(t *testing.T) {
	etcd := etcdv2test.Start(t)
	set(t, etcd, "a", 1)
	etcd.Demand("tiger")
	cfg := quick(etcd.URL)
	if got, err := hasRegistry(t, cfg); err == nil || got {
		t.Errorf("without a password: %v, %v", got, err)
	}
	cfg.Username, cfg.Password = "root", "tiger"
	if got, err := hasRegistry(t, cfg); err != nil || !got {
		t.Errorf("with it: %v, %v", got, err)
	}
}

// However much there is directly below the prefix, at most 1 MiB of it is read.
func TestTheQuestionForTheV2StoreIsBounded(t *testing.T) {
	etcd := etcdv2test.Start(t)
	etcd.Put(root+"/large", strings.Repeat("x", maxTop))
	if got, err := hasRegistry(t, quick(etcd.URL)); err == nil || got {
		t.Errorf("%v, %v; want an error", got, err)
	}
}

func hasRegistry(t *testing.T, cfg etcdconfig.Config) (bool, error) {
	t.Helper()
	cfg, err := cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return HasRegistry(t.Context(), cfg, cfg.Endpoints[0])
}
