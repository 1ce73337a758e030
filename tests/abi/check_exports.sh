#!/usr/bin/env bash
# check_exports.sh SOURCE LIBRARY: every function that a public header declares with LATHE_EXPORT is in the public version
# node of liblathe, LATHE_1, and nothing else is.
set -euo pipefail
source=$1 library=$2
declared=$(cat "$source"/core/include/lathe/*.h | grep -v "^#define LATHE_EXPORT" | tr '\n' ' ' |
    grep -oE 'LATHE_EXPORT [^(;]*\(' | sed -E 's/.*[ *](lathe_[a-z_]+)\($/\1/' | sort)
exported=$(nm -D --defined-only "$library" | sed -nE 's/.* (lathe_[a-z_]+)@@LATHE_1$/\1/p' | sort)
[ -n "$declared" ] || { echo "check_exports: no function was found in the headers"; exit 1; }
diff <(echo "$declared") <(echo "$exported") || {
    echo "check_exports: < is declared with LATHE_EXPORT and not in LATHE_1 of core/liblathe.map, > the reverse"
    exit 1
}
