#!/usr/bin/env bash
# check_walks.sh [FILE]: checks that every function in the walks of docs/design/021-settings-described-once.md that are marked with
# "<!-- walk -->" is in the file that the walk names, so that the page follows the code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
page=${1:-docs/design/021-settings-described-once.md}
failures=0 n=0
while IFS='|' read -r _ _ file functions _; do
    file=$(tr -d ' `' <<<"$file")
    for function in $(tr -d '`,' <<<"$functions"); do
        n=$((n + 1))
        # The SDK's macros define adamw_chunk as name##_chunk, and adamw_create as type##_create.
        where=$file name=$function
        case "$function" in
            adamw_chunk | adamw_tile | adamw_loop) name="##_${function#adamw_}" ;;
            adamw_create) where=core/include/lathe/kit/instance.h name="##_create" ;;
            adamw_step) where=core/include/lathe/kit/optimizer_kit.h name="##_step" ;;
        esac
        grep -qE "(^|[^A-Za-z0-9_])$name\(" "$where" 2>/dev/null || grep -qF "$name(" "$where" 2>/dev/null || {
            printf '%s: %s is not in %s\n' "$page" "$function" "$where" >&2
            failures=1
        }
    done
done < <(sed -n '/^<!-- walk -->$/,/^<!-- end -->$/p' "$page" | grep -E '^\| (·|[0-9]+) \|')
[ "$n" -gt 0 ] || { printf '%s: has no walk\n' "$page" >&2; failures=1; }
[ "$failures" -eq 0 ] || exit 1
printf 'walks: %d functions are where the page says\n' "$n"
