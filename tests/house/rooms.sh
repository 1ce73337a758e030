#!/usr/bin/env bash
# rooms.sh [--check FILE]: prints the table of the rooms of core and the rooms that each one includes. It has no counts of
# files or lines: they would change with every branch.
# --check fails when the table in FILE, between "<!-- rooms -->" and "<!-- end -->", lists other rooms or other
# includes, or when a room has no README.md.
# --write FILE puts the present table there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mode=${1:-} file=${2:-}
# From the lowest floor to the highest.
rooms=$(sed -n '/^set(LATHE_\(ROOMS\|TOOLS\) /,/)/p' cmake/LatheFloors.cmake | tr -d ')' |
    sed 's/^set(LATHE_[A-Z]*//' | xargs)
rooms="$rooms cmd/main"

sources() { find "core/$1" -maxdepth 1 -name '*.[ch]' -o -maxdepth 1 -name '*.cpp' -o -maxdepth 1 -name '*.inc'; }

table() {
    printf '| room | includes |\n|---|---|\n'
    local room
    for room in $rooms; do
        local sees
        sees=$({ sources "$room" | xargs grep -hoE '^#include "[a-z_/]+/' || true; } | sed -E 's/.*"(.+)\/$/\1/' | sort -u)
        printf '| `%s` |' "$room"
        local other list=""
        for other in $rooms; do
            [ "$other" != "$room" ] && grep -qx "$other" <<<"$sees" && list="$list $other"
        done
        printf '%s |\n' "${list:- none}"
    done
}

now=$(table)
case $mode in
"") printf '%s\n' "$now" ;;
--write)
    fresh=$(mktemp)
    awk -v table="$now" '/^<!-- rooms -->$/ {print; print ""; print table; print ""; skip = 1}
        /^<!-- end -->$/ {skip = 0} !skip && !/^<!-- rooms -->$/ {print}' "$file" >"$fresh"
    cat "$fresh" >"$file" && rm -f "$fresh"
    ;;
--check)
    failures=0
    if ! diff <(sed -n '/^<!-- rooms -->$/,/^<!-- end -->$/p' "$file" | grep '^|') - <<<"$now" >&2; then
        printf '%s: the table of rooms is not that of the sources: tests/house/rooms.sh --write %s\n' "$file" "$file" >&2
        failures=1
    fi
    while IFS='|' read -r _ room _; do
        room=$(tr -d ' `' <<<"$room")
        [ "$room" = room ] || [ "$room" = --- ] && continue
        [ -e "core/$room/README.md" ] || {
            printf 'core/%s: has no README.md that says what comes in and what goes out\n' "$room" >&2
            failures=1
        }
    done <<<"$now"
    [ "$failures" -eq 0 ] || exit 1
    printf 'rooms: %d, each with its page\n' "$(wc -w <<<"$rooms")"
    ;;
esac
