#!/usr/bin/env bash
# check_headers.sh CC CXX FOLDER: every public header stands alone, as strict C11, as C++17 and as C++20, and no
# type of CUDA shows in what plugins of any device see.
set -euo pipefail
cc=$1 cxx=$2 folder=$3
failures=0
fail() {
    printf 'header: %s\n' "$*" >&2
    failures=$((failures + 1))
}

checked=0
for header in "$folder"/lathe/*.h "$folder"/lathe/kit/*.h; do
    name=${header#"$folder"/}
    [[ "$name" == *_cuda.h ]] && continue # nvcc's half; included by elementwise.h under __CUDACC__ only
    checked=$((checked + 1))
    # Twice, for the guard; and a function behind it: the header must leave the language as it was.
    source="#include \"$name\"
#include \"$name\"
int after(void);
int after(void) { return 0; }"
    "$cc" -std=c11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -I"$folder" -xc - <<<"$source" ||
        fail "$name does not compile alone as C11"
    for standard in c++17 c++20; do
        # g++ warns of members that a designated initializer leaves out, gcc does not: they are 0 by intention.
        "$cxx" -std=$standard -Wall -Wextra -Wno-missing-field-initializers -Werror -fsyntax-only -I"$folder" -xc++ - <<<"$source" ||
            fail "$name does not compile alone as $standard"
    done
    # Comments may speak of CUDA; declarations may not.
    if "$cc" -std=c11 -fpreprocessed -dD -E -P "$header" 2>/dev/null |
        grep -nE '\b(cuda[A-Z][A-Za-z]*|CU[a-z]+|cublas[A-Za-z]*|__nv_[a-z0-9]+|dim3)\b|include *[<"]cuda'; then
        fail "$name names a type of CUDA"
    fi
done
[ "$checked" -ge 20 ] || fail "only $checked headers found in $folder"
[ "$failures" -eq 0 ] || exit 1
printf '%d headers stand alone\n' "$checked"
