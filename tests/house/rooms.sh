#!/usr/bin/env bash
# rooms.sh [--check FILE]: prints the table of the rooms of core: files, lines, and the rooms that each one includes.
# --check fails when the table in FILE, between "<!-- rooms -->" and "<!-- end -->", lists other rooms or other
# includes, when its number of lines or files of a room is wrong by more than a tenth, or when a room has no README.md.
# --write FILE puts the present table there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mode=${1:-} file=${2:-}
# From the lowest floor to the highest.
rooms=$(grep -oE '^set\(LATHE_(ROOMS|TOOLS) [a-z ]+' cmake/LatheFloors.cmake | cut -d' ' -f2- | tr '\n' ' ')
rooms="${rooms}app"

sources() { find "core/$1" -name '*.[ch]' -o -name '*.cpp' -o -name '*.inc'; }

table() {
    printf '| room | files | lines | includes |\n|---|---|---|---|\n'
    local room
    for room in $rooms; do
        local files lines sees
        files=$(sources "$room" | wc -l)
        lines=$(sources "$room" | xargs cat | wc -l)
        sees=$({ sources "$room" | xargs grep -hoE '^#include "[a-z]+/' || true; } | sed -E 's/.*"([a-z]+)\//\1/' | sort -u)
        printf '| `%s` | %d | %d |' "$room" "$files" "$lines"
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
    plain() { grep '^| `' | sed -E 's/ [0-9]+ \| [0-9]+ \|//'; }
    if ! diff <(sed -n '/^<!-- rooms -->$/,/^<!-- end -->$/p' "$file" | plain) <(plain <<<"$now") >&2; then
        printf '%s: the table of rooms is not that of the sources: tests/house/rooms.sh --write %s\n' "$file" "$file" >&2
        failures=1
    fi
    # Within a tenth, so that two branches do not both change the table for a few lines.
    while IFS='|' read -r _ room files lines _; do
        row=$(grep -F "|$room|" "$file" || true)
        IFS='|' read -r _ _ was_files was_lines _ <<<"$row"
        for pair in "files $was_files $files" "lines $was_lines $lines"; do
            read -r what was now_is <<<"$pair"
            if [ -n "$row" ] && [ $((10 * (was > now_is ? was - now_is : now_is - was))) -gt $((now_is + 9)) ]; then
                printf '%s: the table says %d %s for%s, there are %d: tests/house/rooms.sh --write %s\n' \
                    "$file" "$was" "$what" "$(tr -d '`' <<<"${room% }")" "$now_is" "$file" >&2
                failures=1
            fi
        done
    done < <(grep '^| `' <<<"$now")
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
