#!/usr/bin/env bash
# nvcc_cached.sh -c|-fatbin OUTPUT SOURCE NVCC FLAGS...: compiles a CUDA source, or copies the result of the same
# compilation from the cache. Writes OUTPUT, OUTPUT.d (the files it depends on, for ninja) and OUTPUT.usage (what
# `ptxas -v` reports about each kernel, for tests/house/check_cuda_kernels.sh).
#
# The name of an entry is a hash of everything that the result depends on: the contents of the source and of every
# file it includes for any architecture, the flags, and the versions of nvcc and of the host compiler. An entry is
# therefore never out of date. Paths are not hashed, so build folders and clones share entries. Builds may run at the
# same time: an entry appears by a rename.
#
# LATHE_CACHE names the folder above it (default: lathe in XDG_CACHE_HOME or ~/.cache); LATHE_CACHE=off compiles
# always. Entries that nothing has used for 30 days are deleted.
set -euo pipefail
phase=$1 output=$2 source=$3 nvcc=$4
shift 4

cache=${LATHE_CACHE:-${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}/lathe}
if [ "$cache" = off ] || [ "$cache" = /lathe ] || ! mkdir -p "$cache/cuda" 2>/dev/null || [ ! -w "$cache/cuda" ]; then
    cache=
fi

# The flags without the include folders: the files that these lead to are hashed instead.
flags() {
    local flag
    for flag in "$@"; do
        [[ "$flag" == -I* ]] || printf '%s\n' "$flag"
    done
}

# The key of this compilation, from the dependencies in OUTPUT.d.
key() {
    {
        "$nvcc" --version
        "${NVCC_CCBIN:-gcc}" -v 2>&1 | tail -n 1
        printf '%s\n' "$phase" "${source##*/}" "${NVCC_PREPEND_FLAGS:-}" "${NVCC_APPEND_FLAGS:-}"
        flags "$@"
        sed -e '1s/^[^:]*://' -e 's/\\$//' "$output.d" | xargs sha256sum | cut -d ' ' -f 1
    } | sha256sum | cut -d ' ' -f 1
}

"$nvcc" -M "$@" -MT "$output" -MF "$output.d" "$source"
entry=
if [ -n "$cache" ]; then
    entry=$cache/cuda/$(key "$@")
    if cp "$entry.usage" "$output.usage" 2>/dev/null && cp "$entry.o" "$output" 2>/dev/null; then
        touch "$entry.usage" "$entry.o" 2>/dev/null || true
        exit 0
    fi
fi

status=0
"$nvcc" "$phase" "$@" -o "$output" "$source" 2>"$output.err" || status=$?
told='^ptxas info\|^ *[0-9]* bytes stack frame'
grep "$told" "$output.err" >"$output.usage" || true
grep -v "$told" "$output.err" >&2 || true
rm -f "$output.err"
[ "$status" -eq 0 ] || exit "$status"

if [ -n "$entry" ]; then
    copy=$entry.$$
    cp "$output.usage" "$copy" 2>/dev/null && mv "$copy" "$entry.usage" &&
        cp "$output" "$copy" 2>/dev/null && mv "$copy" "$entry.o" || rm -f "$copy"
    find "$cache/cuda" -type f -mtime +30 -delete 2>/dev/null || true
fi
