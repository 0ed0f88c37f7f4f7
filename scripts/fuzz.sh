#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for a bounded time each.
# usage: scripts/fuzz.sh [TIME]     TIME as `go test -fuzztime` takes it; default 10s
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
	sed -n '2,3s/^# //p' "$0"
	exit 0
fi
time=${1:-10s}
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz fuzzes one target. Before Go 1.27 the end of TIME itself may be taken for a failure, when a worker
# notices it first (go.dev/issue/75804): a run that ended so has found nothing, and is repeated. Whatever
# else fails has more to say than that one line, and most of all the input that it failed with.
fuzz() {
	local dir=$1 target=$2 try
	for try in 1 2 3; do
		[[ $try == 1 ]] || echo "== ./$dir $target: its time was up, which Go took for a failure; again"
		go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x 2>&1 | tee "$log" && return
		[[ $(sed -n '/^--- FAIL: /,/^FAIL$/p' "$log" | sed '1d;$d') == '    context deadline exceeded' ]] || return 1
	done
	return 1
}

count=0
for dir in $(git grep -l --untracked '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort); do
		echo "== ./$dir $target, $time"
		fuzz "$dir" "$target"
		count=$((count + 1))
	done
done
[[ $count -gt 0 ]] || { echo "no fuzz target found" >&2; exit 1; }
echo "$count fuzz targets passed"
