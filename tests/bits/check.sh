#!/usr/bin/env bash
# Tests compare.sh on one build: compared with itself it is equal, another seed is found, and so is a failed run.
#
#   tests/bits/check.sh BUILD
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lathe_bits_check_XXXXXX")
trap 'rm -rf "$work"' EXIT

# expect STATUS PATTERN ARGUMENTS...
n=0
expect() {
    local status=0
    n=$((n + 1))
    "$here/compare.sh" --work "$work/$n" "${@:3}" "$build" "$build" >"$work/out" 2>&1 || status=$?
    cat "$work/out"
    [ "$status" = "$1" ] || { echo "check.sh: status $status, expected $1" >&2; exit 1; }
    grep -qE "$2" "$work/out" || { echo "check.sh: no line like $2" >&2; exit 1; }
}

build=$1
expect 0 '^3 equal, 0 as listed in exceptions.txt, 0 different, 0 skipped' --only '^(adamw|lora|ema)$'
expect 1 '^adamw_8bit .*DIFFERS by .*: out/metrics.jsonl: line 1, ' --only '^adamw_8bit$' --alter train.seed=8
expect 1 '^lion .*DIFFERS by inf .*after failed: .*unknown' --only '^lion$' --alter optimizer.no_such_key=1
expect 2 '^no run was made' --only '^no_such_run$'
