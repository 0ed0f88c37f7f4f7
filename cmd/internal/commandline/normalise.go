package commandline

import (
	"strings"

	"github.com/spf13/pflag"
)

// normalise rewrites arguments in v0.4's syntax, which is package flag's, into the one form that
// pflag reads the same way: --name or --name=value.
//
// In v0.4 one dash and two meant the same, and the next argument could be the value. pflag gives
// single dashes to one-letter flags: it would read "-etcd_servers x" as "-e tcd_servers" and
// "-vmodule=x=2" as "-v module=x=2". So each name is looked up in the flag set:
//
//	-bind_address 10.0.0.1   →  --bind_address=10.0.0.1   needs a value: the next argument, as it is
//	-vmodule=proxier=2       →  --vmodule=proxier=2       cut at the first "="
//	-version raw             →  --version raw             needs none: raw is positional
//	-bogus                   →  --bogus                   unknown, and pflag says so
//
// As in package flag, flags end at the first argument without a dash, at a lone dash, and after
// "--". What follows is left alone. Mixed with arguments, flags end at "--" only.
func normalise(flags *pflag.FlagSet, args []string, mixed bool) []string {
	var done []string
	for len(args) > 0 {
		arg := args[0]
		if len(arg) < 2 || arg[0] != '-' {
			if !mixed {
				break
			}
			done, args = append(done, arg), args[1:]
			continue
		}
		if arg == "--" {
			break
		}
		args = args[1:]
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if flag := lookup(flags, name); flag != nil {
			name = flag.Name
			if !hasValue && flag.NoOptDefVal == "" && len(args) > 0 {
				value, hasValue, args = args[0], true, args[1:]
			}
		}
		arg = "--" + name
		if hasValue {
			arg += "=" + value
		}
		done = append(done, arg)
	}
	return append(done, args...)
}

// lookup finds a flag by its name or by its one letter.
func lookup(flags *pflag.FlagSet, name string) *pflag.Flag {
	if len(name) == 1 {
		return flags.ShorthandLookup(name)
	}
	return flags.Lookup(name)
}

// underscored lets words be joined by dashes as well: "bind-address", as later kube-proxies spell it.
func underscored(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
}
