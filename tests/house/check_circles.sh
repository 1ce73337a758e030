#!/usr/bin/env bash
# check_circles.sh [FOLDER]: fails when files of core include each other in a circle, inside a room or between rooms.
# A header and the source of the same name are one unit. X_state.h and X_internal.h, which only the sources of X include,
# belong to the unit X. FOLDER: the folder to check instead of core.
# Objects show circles that includes do not: check_objects.sh.
set -euo pipefail
export LC_ALL=C
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../../core}"

# Writes a sed command for each internal header, which replaces its unit by that of the header it is named after.
internal() {
    local file unit
    find . -name '*_state.h' -o -name '*_internal.h' | while read -r file; do
        unit=${file%_*.h}
        [ ! -e "${file%.h}.c" ] && [ -e "$unit.h" ] && printf 's#(^| )%s( |$)#\\1%s\\2#\n' "${file:2:-2}" "${unit:2}"
    done
    true
}

# Writes a line "unit included-unit" for each include. A unit is a path without extension.
edges() {
    grep -rHoE '^#include "[^"]+"' --include='*.c' --include='*.h' --include='*.cpp' . |
        grep -v '^\./include/' | sed -E 's|^\./([^:]+)\.[a-z]+:#include "([^"]+)\.h"|\1 \2|' |
        sed -E -f <(internal) |
        awk '$1 != $2 {
            if ($2 !~ /\//) { folder = $1; sub(/\/[^\/]*$/, "", folder); $2 = folder "/" $2 }
            if ($1 != $2) print $1, $2 }' | sort -u
}

# Recursions that are meant: "unit included-unit", left out of the circles of files.
meant='
run/plan/trial run/plan/methods'
# adapter.name = "auto" is chosen while a run is configured, by plans of runs that are configured with each method.

of_files=$(edges)
of_rooms=$(awk '{sub(/\/[^\/]*$/, "", $1); sub(/\/[^\/]*$/, "", $2); if ($1 != $2) print $1, $2}' <<<"$of_files" | sort -u)
failures=0
check() {
    local circles
    if ! circles=$(tsort <<<"$2" 2>&1 >/dev/null); then
        printf 'core: %s include each other in a circle:\n%s\n' "$1" "$(sed 's/^tsort: //; s/^-: .*/circle:/' <<<"$circles")" >&2
        failures=1
    fi
}
check files "$(grep -vxF "$(sed '/^$/d' <<<"$meant")" <<<"$of_files")"
check rooms "$of_rooms"
[ "$failures" -eq 0 ] || exit 1
printf 'includes of core: %d, no circle\n' "$(wc -l <<<"$of_files")"
