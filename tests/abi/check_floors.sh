#!/usr/bin/env bash
# check_floors.sh CC SOURCE BUILD: with the include folders that each floor is really compiled with, a
# header of a floor it may see is found and one of any other floor is not.
set -euo pipefail
cc=$1 source=$2 build=$3
failures=0
fail() {
    printf 'floor: %s\n' "$*" >&2
    failures=$((failures + 1))
}

# The rooms of liblathe, then those above it (docs/design/000-floors.md).
floors="base plug config reward ir passes io gguf jinja template unicode text tokenjson tokentrain records dialog data model convert store exec ranks update
    generate metrics checkpoint lineage islands run opening primitives rollout loop"
tools="view harness devicecheck conformance cli plugcmd savedcmd textcmd newcmd plancmd pipeline chat"
low="base plug config ir passes io gguf text records dialog data model store exec"
all=$(tr '\n' ' ' <<<"$floors" | tr -s ' ')
declare -A sees=([base]="" [plug]="base" [config]="base plug" [reward]="base plug config" [ir]="base plug" [passes]="base ir" [io]="base" [gguf]="base io"
    [jinja]="base" [template]="base io gguf jinja" [unicode]="base" [text]="base unicode" [tokenjson]="base io gguf unicode text"
    [tokentrain]="base io gguf unicode text tokenjson" [records]="base plug"
    [dialog]="base plug io gguf jinja template unicode text records"
    [data]="base plug io gguf jinja template unicode text tokenjson tokentrain records dialog"
    [model]="base plug ir io gguf" [convert]="base plug ir io gguf unicode text tokenjson model"
    [store]="base plug ir io gguf model" [exec]="base plug ir passes io gguf model store" [ranks]="base plug ir passes io gguf model store exec" [update]="$low"
    [generate]="base plug ir passes io gguf text records dialog data model store exec update" [metrics]="$low update"
    [checkpoint]="$low update metrics" [lineage]="$low update metrics checkpoint" [islands]="$low ranks update metrics checkpoint"
    [run]="$low ranks reward update generate metrics checkpoint islands jinja template tokenjson tokentrain"
    [opening]="$low ranks reward update generate metrics checkpoint islands jinja template tokenjson tokentrain run"
    [primitives]="$low ranks update generate metrics checkpoint islands run opening"
    [rollout]="$low ranks reward update metrics checkpoint islands run opening primitives"
    [loop]="$low ranks update metrics checkpoint islands run opening primitives rollout tokenjson tokentrain"
    [view]="$all" [harness]="$all" [devicecheck]="$all harness" [conformance]="$all harness devicecheck" [cli]="$all"
    [plugcmd]="$all view harness conformance cli" [savedcmd]="$all view cli" [textcmd]="$all view cli" [newcmd]="$all cli" [plancmd]="$all view cli" [pipeline]="$all cli"
    [chat]="$all view")
floors="$all$tools"

# The -I flags of one file of the floor, from the build's own record.
includes_of() {
    grep -F '"command":' "$build/compile_commands.json" | grep -F -- "-c $source/core/$1/" | head -1 |
        grep -oE -- '(-I|-isystem )[^ ]+' || true
}

# A header of each floor.
declare -A header=()
for floor in $floors; do
    header[$floor]=$(basename "$(find "$source/core/$floor" -name '*.h' | sort | head -1)")
done

# One source asks for a header of every floor; what is found remains after the preprocessor.
question() {
    local other
    for other in $floors; do
        printf '#if __has_include("%s/%s")\nfound %s\n#endif\n' "$other" "${header[$other]}" "$other"
    done
}

tried=0
for floor in $floors; do
    mapfile -t flags < <(includes_of "$floor" | sed 's/^-isystem /-I/')
    if [ ${#flags[@]} -eq 0 ]; then
        fail "the build has no file of core/$floor"
        continue
    fi
    found=" $(question | "$cc" -std=gnu11 -E -P "${flags[@]}" -xc - | sed -n 's/^found //p' | tr '\n' ' ')"
    [[ "$found" == *" $floor "* ]] || fail "core/$floor does not find its own $floor/${header[$floor]}"
    for other in $floors; do
        [ "$other" = "$floor" ] && continue
        tried=$((tried + 1))
        if [[ "$found" == *" $other "* ]]; then
            [[ " ${sees[$floor]} " == *" $other "* ]] || fail "core/$floor can include $other/${header[$other]}"
        else
            [[ " ${sees[$floor]} " != *" $other "* ]] || fail "core/$floor cannot include $other/${header[$other]}"
        fi
    done
done
n=$(wc -w <<<"$floors")
[ "$tried" -eq $((n * (n - 1))) ] || fail "$tried pairs of floors were tried, there are $((n * (n - 1)))"
rooms=$(sed -nE 's/^set\(LATHE_(ROOMS|TOOLS) ([a-z ]+)\)$/\2/p' "$source/cmake/LatheFloors.cmake" | tr '\n' ' ')
[ "$(wc -w <<<"$rooms")" -eq "$n" ] || fail "cmake/LatheFloors.cmake has other rooms than this list"
[ "$failures" -eq 0 ] || exit 1
printf '%d pairs of floors are as drawn\n' "$tried"
