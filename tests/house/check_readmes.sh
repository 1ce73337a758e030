#!/usr/bin/env bash
# check_readmes.sh LATHE [--write]: checks that the tables of keys in Markdown files equal the output of `lathe show`.
# A table is between the lines
#     <!-- lathe show --markdown KIND/NAME -->      and      <!-- end -->
# --write replaces the tables by the present output.
set -euo pipefail
lathe=$(realpath "$1")
write=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# A plugin with CUDA code is built only where nvcc is found; elsewhere its table is not checked.
is_built() {
    [[ "$1" != */*_cuda && "$1" != */cudnn ]] || [ -e "$(dirname "$lathe")/../lib/lathe/plugins/$1.so" ]
}

failures=0 count=0
while IFS= read -r file; do
    fresh=$(mktemp)
    copying=1
    while IFS= read -r line || [ -n "$line" ]; do
        if [[ "$line" =~ ^\<!--\ lathe\ show\ --markdown\ ([a-z0-9_/]+)\ --\>$ ]] && is_built "${BASH_REMATCH[1]}"; then
            printf '%s\n\n' "$line"
            "$lathe" show "${BASH_REMATCH[1]}" --markdown
            copying=0
        elif [ "$line" = "<!-- end -->" ]; then
            [ "$copying" = 1 ] || printf '\n'
            copying=1
            printf '%s\n' "$line"
        elif [ "$copying" = 1 ]; then
            printf '%s\n' "$line"
        fi
    done <"$file" >"$fresh"
    count=$((count + 1))
    if ! cmp -s "$file" "$fresh"; then
        if [ "$write" = --write ]; then
            cat "$fresh" >"$file"
        else
            printf '%s: a table of keys is not what lathe show says; tests/house/check_readmes.sh LATHE --write\n' "$file" >&2
            failures=$((failures + 1))
        fi
    fi
    rm -f "$fresh"
done < <(grep -rlE '^<!-- lathe show --markdown ' --include='*.md' plugins docs README.md 2>/dev/null | sort)

# A hand-written list of keys in a README would become wrong unnoticed.
for readme in plugins/*/*/README.md; do
    grep -q '^<!-- lathe show --markdown ' "$readme" || {
        printf '%s: has no generated table of keys\n' "$readme" >&2
        failures=$((failures + 1))
    }
done
[ "$failures" -eq 0 ] || exit 1
printf 'tables of keys: %d files agree with lathe show\n' "$count"
