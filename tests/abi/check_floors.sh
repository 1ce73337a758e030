#!/usr/bin/env bash
# check_floors.sh CC SOURCE BUILD: with the include folders that each floor is really compiled with, a
# header of a floor it may see compiles and one of any other floor is not found.
set -euo pipefail
cc=$1 source=$2 build=$3
failures=0
fail() {
    printf 'floor: %s\n' "$*" >&2
    failures=$((failures + 1))
}

low="base plug ir io text data model exec"
declare -A sees=([base]="" [plug]="base" [ir]="base plug" [io]="base" [text]="base" [data]="base io text"
    [model]="base plug ir io" [exec]="base plug ir io model" [update]="$low"
    [record]="$low update" [checkpoint]="$low update record" [run]="$low update record checkpoint"
    [loop]="$low update record checkpoint run")
floors="$low update record checkpoint run loop"

# The -I flags of one file of the floor, from the build's own record.
includes_of() {
    grep -F '"command":' "$build/compile_commands.json" | grep -F -- "-c $source/core/$1/" | head -1 |
        grep -oE -- '(-I|-isystem )[^ ]+' || true
}

tried=0
for floor in $floors; do
    mapfile -t flags < <(includes_of "$floor" | sed 's/^-isystem /-I/')
    if [ ${#flags[@]} -eq 0 ]; then
        fail "the build has no file of core/$floor"
        continue
    fi
    for other in $floors; do
        [ "$other" = "$floor" ] && continue
        header=$(basename "$(find "$source/core/$other" -name '*.h' | sort | head -1)")
        tried=$((tried + 1))
        if echo "#include \"$other/$header\"" | "$cc" -std=gnu11 -E "${flags[@]}" -xc - >/dev/null 2>&1; then
            [[ " ${sees[$floor]} " == *" $other "* ]] || fail "core/$floor can include $other/$header"
        else
            [[ " ${sees[$floor]} " != *" $other "* ]] || fail "core/$floor cannot include $other/$header"
        fi
    done
done
[ "$tried" -eq 156 ] || fail "$tried pairs of floors were tried, there are 156"
[ "$failures" -eq 0 ] || exit 1
printf '%d pairs of floors are as drawn\n' "$tried"
