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

count=0
for dir in $(git grep -l --untracked '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort); do
		echo "== ./$dir $target, $time"
		go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x
		count=$((count + 1))
	done
done
[[ $count -gt 0 ]] || { echo "no fuzz target found" >&2; exit 1; }
echo "$count fuzz targets passed"
