#!/usr/bin/env bash
# Runs the tests of records, conversations and readers under Valgrind: memory that is read after it was freed, or
# before it was written, which AddressSanitizer misses inside libraries that are not built with it (jansson).
#
#   tests/house/valgrind.sh [BUILD]      about a minute and a half
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build}
tests=(test_json_record test_format test_reader test_dataset test_chat_lists test_chat_record test_prompts test_unpaired)

command -v valgrind >/dev/null || { echo "valgrind.sh: Valgrind is missing (apt-get install valgrind)" >&2; exit 1; }
failed=0
for name in "${tests[@]}"; do
    program=$(find "$build" -type f -name "$name" -perm -u+x | head -n 1)
    [ -n "$program" ] || { echo "valgrind.sh: $build has no $name; build it first" >&2; exit 1; }
    log=$(mktemp)
    # The runner starts each test as a process of its own; the exit code is that of a test with an error.
    if ! valgrind -q --trace-children=yes --error-exitcode=9 --leak-check=no "$program" -j1 >"$log" 2>&1 ||
        grep -q '^==[0-9]*== ' "$log"; then
        echo "valgrind.sh: $name" >&2
        cat "$log" >&2
        failed=1
    fi
    rm -f "$log"
done
[ "$failed" -eq 0 ] && echo "Valgrind: no error in ${#tests[@]} programs of tests"
exit "$failed"
