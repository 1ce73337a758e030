#!/usr/bin/env bash
# check_objects.sh BUILD: reads the symbols of the objects of core and fails when rooms need each other in a circle, or
# when a function is declared by a header of another room than the one that defines it. Includes show neither: a room
# can call a function that only a lower header declares.
set -euo pipefail
export LC_ALL=C
core=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../core" && pwd)
objects=$1/core/CMakeFiles

# Recursions that are meant: "room room: reason". At most eight.
allowed='
graph/ir graph/ops: a graph asks the table of ops for the rules of a node, and the rules of an op build nodes
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "T symbol room/file" for each definition, "U symbol room/file" for each need.
find "$objects" -name '*.o' -path '*/lathe_*' -print0 | xargs -0 nm -gA --no-sort |
    sed -nE 's#^[^:]*\.dir/([^:]+)\.o: *[0-9a-f]* +([A-Za-z]) +([^ ]+)$#\2 \3 \1#p' |
    awk -v core="$core" '{
        kind = $1 ~ /[TDBRVW]/ ? "T" : $1 ~ /[Uv]/ ? "U" : ""
        if (!($3 in there)) there[$3] = (getline line <(core "/" $3)) >= 0
        if (kind != "" && there[$3]) print kind, $2, $3
    }' | sort -u >"$work/symbols"
[ "$(grep -c '^T' "$work/symbols")" -gt 1000 ] || {
    echo "check_objects.sh: $objects has no objects of core: build first" >&2
    exit 1
}

# "room other-room symbol" for each symbol that a room needs of another.
awk 'function room(path) { sub(/\/[^\/]*$/, "", path); return path }
    NR == FNR { if ($1 == "T") where[$2] = room($3); next }
    $1 == "U" && ($2 in where) && where[$2] != room($3) { print room($3), where[$2], $2 }
' "$work/symbols" "$work/symbols" | sort -u >"$work/needs"

failures=0
n_allowed=$(grep -c : <<<"$allowed" || true)
[ "$n_allowed" -le 8 ] || { echo "check_objects.sh: $n_allowed recursions are allowed, 8 at most" >&2; failures=1; }
awk -F'[ :]' 'NR == FNR { if (NF > 2) meant[$1 " " $2] = meant[$2 " " $1] = 1; next }
    !(($1 " " $2) in meant) { print $1, $2 }' <(printf '%s' "$allowed") "$work/needs" | sort -u >"$work/edges"
if ! circle=$(tsort "$work/edges" 2>&1 >/dev/null); then
    printf 'core: rooms need each other in a circle:\n%s\n' "$(sed 's/^tsort: //; s/^-: .*/circle:/' <<<"$circle")" >&2
    for a in $(sed 's/^tsort: //; /^-/d' <<<"$circle" | sort -u); do
        for b in $(sed 's/^tsort: //; /^-/d' <<<"$circle" | sort -u); do
            awk -v a="$a" -v b="$b" '$1 == a && $2 == b { print "  " a " needs " $3 " of " b }' "$work/needs" | head -3 >&2
        done
    done
    failures=1
fi
while IFS=: read -r pair _; do # a recursion that is gone leaves the list
    read -r a b <<<"$pair"
    [ -z "$a" ] || { grep -q "^$a $b " "$work/needs" && grep -q "^$b $a " "$work/needs"; } ||
        { echo "check_objects.sh: $a and $b no longer need each other: remove them from the list" >&2; failures=1; }
done <<<"$allowed"

# "function room" for each declaration in a header of core.
(cd "$core" && find . -name '*.h' -not -path './include/*' -print0 | xargs -0 awk '
    FNR == 1 { file = FILENAME; sub(/^\.\//, "", file); sub(/\/[^\/]*$/, "", file); comment = 0 }
    /\/\*/ { comment = 1 } comment { if (/\*\//) comment = 0; next }
    /^[a-z_].*[ *]lathe_[a-z0-9_]+\(/ || /^lathe_[a-z0-9_]+\(/ {
        if (/^(static|typedef|#)/) next
        line = $0
        sub(/\(.*/, "(", line)
        if (match(line, /lathe_[a-z0-9_]+\($/)) print substr(line, RSTART, RLENGTH - 1), file
    }') | sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -gt 800 ] || { echo "check_objects.sh: found too few declarations" >&2; failures=1; }
elsewhere=$(awk 'NR == FNR { if ($1 == "T") { path = $3; sub(/\/[^\/]*$/, "", path); where[$2] = path; file[$2] = $3 } next }
    ($1 in where) { n[$1]++; if ($2 == where[$1]) own[$1] = 1; else other[$1] = $2 }
    END { for (f in n) if (!own[f]) print "  " f ": defined in " file[f] ", declared in " other[f] }
' "$work/symbols" "$work/declared" | grep -vE ' lathe_op_(find|info_get):' | sort || true)
if [ -n "$elsewhere" ]; then
    printf 'core: functions are declared in another room than they are defined in:\n%s\n' "$elsewhere" >&2
    failures=1
fi
[ "$failures" -eq 0 ] || exit 1
printf 'rooms of core: %d needs of other rooms, no circle but %d that are meant\n' \
    "$(cut -d' ' -f1,2 "$work/needs" | sort -u | wc -l)" "$n_allowed"
