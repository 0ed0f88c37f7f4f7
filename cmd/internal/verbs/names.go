package verbs

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/control"
)

// newNames is for "kube-proxy names", of which completions are made. A shell may take other characters for a command, so names with such are
// left out.
func newNames() *Verb {
	v := newVerb("names", "[SERVICE]", "lists the services of a running node, or the endpoints of one, for completions of a shell")
	query, endpoints := make(url.Values), false
	v.AddFlags = func(f *pflag.FlagSet) {
		f.BoolVar(&endpoints, "endpoints", false, "list the endpoints of all services")
	}
	v.Examine = func(args []string) error { return oneService(args, query) }
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		if endpoints {
			query.Set("endpoints", "true")
		}
		var names control.Names
		if err := node.Get(ctx, "/v1/names", query, &names); err != nil {
			return 0, err
		}
		return Done, v.print(stdout, &names, func(w io.Writer) {
			for _, name := range names.Names {
				if plain(name) {
					fmt.Fprintln(w, name)
				}
			}
		})
	}
	return v
}

// plain reports whether no shell takes a name for anything else.
func plain(name string) bool {
	const punctuation = "-._:/[]"
	return name != "" && name[0] != '-' && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(punctuation, r)
	}) < 0
}
