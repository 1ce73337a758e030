#!/usr/bin/env bash
# tidy.sh BUILD JOBS: clang-tidy over the sources of the product and of bench/ that BUILD compiles. Tests are left out:
# they are Criterion's macros.
#
# A source that is compiled more than once (for each instruction set, or again for the emulated GPU) is checked once for
# each different text that the preprocessor makes of it: the same text gets the same answer. A text that passed before
# is not checked again: an empty file named by its hash is kept in LATHE_CACHE (default: lathe in XDG_CACHE_HOME or
# ~/.cache); LATHE_CACHE=off checks everything. The hash covers the text with its comments, the warning flags,
# .clang-tidy, this script and the version of clang-tidy.
#
# LATHE_TIDY_RECENT=N: the static analyzer (clang-analyzer-*), which takes nine tenths of the time, sees only sources that
# changed in the last N commits; the others passed it then. Unset, or where the history is shorter: it sees all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
self=$root/tests/house/tidy.sh

# -mavx512fp16: clang 14 knows _Float16 with it only. -Wno-error: the build's warnings are GCC's to judge; with --checks on
# its command line, clang-tidy would report clang's own as errors.
extra=(-mavx512fp16 -Wno-error -Wno-unknown-warning-option -Wno-ignored-optimization-argument)

# key FOLDER: FOLDER/text is the hash of what the preprocessor makes of the one command in FOLDER/compile_commands.json,
# FOLDER/key that of everything that the answer depends on.
key() {
    local words=() flags=() compile=() line word directory='' command='' skip=''
    while IFS= read -r line; do
        case "$line" in
            *'"directory": "'*) directory=${line#*: \"} directory=${directory%\",} ;;
            *'"command": "'*) command=${line#*: \"} command=${command%\",} ;;
        esac
    done <"$1/compile_commands.json"
    command=${command//\\\\/$'\1'} command=${command//\\\"/\"} command=${command//$'\1'/\\}
    eval "words=($command)"
    for word in "${words[@]:1}"; do
        if [ -n "$skip" ]; then
            skip=
            continue
        fi
        case "$word" in
            -o) skip=1 ; continue ;;
            -c) continue ;;
            -W* | -w | -std=* | -pedantic* | -fopenmp*) flags+=("$word") ;;
        esac
        compile+=("$word")
    done
    (cd "$directory" && clang-14 -E -CC "${compile[@]}" "${extra[@]}" 2>/dev/null) |
        sed -e '/^# [0-9]* "<built-in>"/d' -e "s|$root/||g" | sha256sum >"$1/text"
    { cat "$LATHE_TIDY_BASE" "$1/text"; printf '%s\n' "${flags[@]}"; } | sha256sum >"$1/key"
}

# check FOLDER: clang-tidy over it; remembers that it passed.
check() {
    local file fewer=()
    file=$(sed -n 's/^ *"file": "\(.*\)"$/\1/p' "$1/compile_commands.json")
    [ -z "$LATHE_TIDY_ANALYZED" ] || grep -qxF -- "${file#"$root"/}" "$LATHE_TIDY_ANALYZED" || fewer=("--checks=-clang-analyzer-*")
    clang-tidy-14 -p "$1" --quiet "${extra[@]/#/--extra-arg=}" "${fewer[@]}" "$file" 2> \
        >(grep -vE '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter|^$' >&2 || true) || return 1
    [ ${#fewer[@]} -gt 0 ] || [ -z "$LATHE_TIDY_CACHE" ] || : >"$LATHE_TIDY_CACHE/$(cut -d ' ' -f 1 "$1/key")"
}

case "$1" in
    --key | --check) # one of the workers below
        "${1#--}" "$2"
        exit
        ;;
esac

build=$1 jobs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=${LATHE_CACHE:-${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}/lathe}
if [ "$cache" = off ] || [ "$cache" = /lathe ] || ! mkdir -p "$cache/tidy" 2>/dev/null || [ ! -w "$cache/tidy" ]; then
    cache=
fi
export LATHE_TIDY_CACHE=${cache:+$cache/tidy} LATHE_TIDY_BASE=$work/base
export LATHE_TIDY_ANALYZED=
if [ -n "${LATHE_TIDY_RECENT:-}" ] && git diff --name-only "HEAD~$LATHE_TIDY_RECENT" >"$work/recent" 2>/dev/null; then
    LATHE_TIDY_ANALYZED=$work/recent
fi
{ clang-tidy-14 --version; cat .clang-tidy "$self"; } >"$work/base"

# One folder for each command. flash_cpu is written in GCC's vector builtins, which clang 14 does not have.
awk -v root="$root/" -v work="$work/" '
    /^ *"directory":/ { directory = $0 }
    /^ *"command":/ { command = $0 }
    /^ *"file":/ {
        file = $0
        sub(/^ *"file": "/, "", file)
        sub(/".*/, "", file)
        if (index(file, root) != 1)
            next
        name = substr(file, length(root) + 1)
        if (name !~ /^(core|kernels|plugins|bench)\/.*\.c$/ || name ~ /\/test_[^\/]*$/ || name ~ /^plugins\/attention\/flash_cpu\//)
            next
        folder = work sprintf("%04d", n++)
        system("mkdir " folder)
        printf "[{\n%s\n%s\n%s\n}]\n", directory, command, $0 > (folder "/compile_commands.json")
        close(folder "/compile_commands.json")
        print folder, file
    }' "$build/compile_commands.json" >"$work/list"
[ -s "$work/list" ] || { echo "tidy: $build compiles no source of the product" >&2; exit 1; }

cut -d ' ' -f 1 "$work/list" | xargs -P "$jobs" -n 1 "$self" --key
n_files=$(cut -d ' ' -f 2- "$work/list" | sort -u | wc -l)
declare -A seen=()
while read -r folder file; do # the product's commands come before those of tests/, which have fewer warnings
    text=$(<"$folder/text")
    hash=$(<"$folder/key") && hash=${hash%% *}
    [ -z "${seen[$text]:-}" ] || continue
    seen[$text]=1
    if [ -n "$cache" ] && [ -e "$cache/tidy/$hash" ]; then
        touch "$cache/tidy/$hash" 2>/dev/null || true
    else
        printf '%d %s\n' "$(stat -c %s "$file")" "$folder"
    fi
done <"$work/list" | sort -rn >"$work/todo" # the longest first, so that no long one is left for the end
printf '== clang-tidy over %d of %d texts of %d files\n' "$(wc -l <"$work/todo")" "$(cat "$work"/*/text | sort -u | wc -l)" \
    "$n_files" >&2
cut -d ' ' -f 2 "$work/todo" | xargs -r -P "$jobs" -n 1 "$self" --check
[ -z "$cache" ] || find "$cache/tidy" -type f -mtime +30 -delete 2>/dev/null || true
