#!/usr/bin/env bash
# check_bad_input.sh: checks that every test that docs/bad-input.md names as `suite: name` exists. A name may be cut with ….
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
have=$(grep -rhoE '^Test\([a-z_0-9]+, [a-z_0-9]+' tests plugins | sed -E 's/^Test\(([a-z_0-9]+), /\1: /')
failures=0 count=0
while IFS= read -r name; do
    count=$((count + 1))
    if ! grep -qE "^${name//…/.*}\$" <<<"$have"; then
        printf 'docs/bad-input.md: there is no test %s\n' "$name" >&2
        failures=$((failures + 1))
    fi
done < <(grep -oE '`[a-z_0-9]+: [a-z_0-9]+…?`' docs/bad-input.md | tr -d '`' | sort -u)
[ "$count" -gt 0 ] || { echo "docs/bad-input.md names no test" >&2; exit 1; }
[ "$failures" -eq 0 ] || exit 1
printf 'bad input: %d tests are there\n' "$count"
