package etcdv2source

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
)

// Version asks one member of a complete configuration which version it is, such as "2.3.8".
func Version(ctx context.Context, cfg etcdconfig.Config, member string) (string, error) {
	return once(ctx, cfg, member, (*conn).version)
}

// HasRegistry reports whether one member of a complete configuration has something below the registry's prefix in its v2 store: records,
// or directories for them. A member that does not serve the v2 API has nothing.
func HasRegistry(ctx context.Context, cfg etcdconfig.Config, member string) (bool, error) {
	return once(ctx, cfg, member, (*conn).hasRegistry)
}

// once sends one request to one member over a connection of its own.
func once[T any](ctx context.Context, cfg etcdconfig.Config, member string, request func(*conn, context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	names := etcdconfig.NewNames(nil)
	defer names.Close()
	c := (&dialer{cfg, names}).open(ctx, member)
	defer c.close()
	return request(c, ctx)
}

var errNoVersion = errors.New("this is no etcd: it does not tell its version")

// parseVersion reads what /version answers. Etcd 3 and 2.1 and later have {"etcdserver":"2.3.8"}, 2.0 {"releaseVersion":"2.0.5"}, and
// earlier ones the text "etcd 0.4.6".
func parseVersion(text []byte) (string, error) {
	var answer struct {
		Server  string `json:"etcdserver"`
		Release string `json:"releaseVersion"`
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "etcd ")
	if !ok {
		if json.Unmarshal(text, &answer) != nil {
			return "", errNoVersion
		}
		version = answer.Server + answer.Release
	}
	if Major(version) < 0 || len(version) > 64 || config.OneLine(version) != version {
		return "", errNoVersion
	}
	return version, nil
}

// Major gives the first number of a version, -1 if there is none.
func Major(version string) int {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.ParseUint(major, 10, 16)
	if err != nil {
		return -1
	}
	return int(n)
}
