#!/usr/bin/env bash
# The registers of every CUDA kernel that was built, as ptxas told them (cmake/nvcc_cached.sh): fails when one keeps
# more than two of them in memory, be it spilled or an array with an index of the run; and when nothing was told.
#
#   tests/house/check_cuda_kernels.sh BUILD [--list]
#
# --list: of all of them arch, kernel, registers, bytes of stack, of spills, of shared memory.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: tests/house/check_cuda_kernels.sh BUILD [--list]" >&2; exit 2; }

# Bytes that a kernel may have: two registers, written and read a few times in a thread's life, in the first cache.
any=8
# kernel, arch, bytes: why
# make_dk_dv<4>, reference_cuda: ptxas takes 128 registers on sm_100, where 178 on sm_90 need none. The backend for
# what cuDNN does not take.
# backward<float, 1, 1>, softmax: for f32 rows that cannot be read four elements at a time, a warp keeps two rows in
# registers. ptxas keeps two registers in memory on sm_80 and sm_90a, and four on sm_89.
known=$'make_dk_dv<4>\tsm_100\t72\nbackward<float, 1, 1>\tsm_89\t16'

find "$1" -name '*.usage' -exec cat {} + | { command c++filt 2>/dev/null || cat; } |
    awk -v any="$any" -v known="$known" -v all="${2:-}" '
    BEGIN {
        n_known = split(known, line, "\n")
        for (i = 1; i <= n_known; i++) {
            at = split(line[i], word, "\t")
            may[word[1] " " word[2]] = word[at]
        }
    }
    # the name with its template arguments alone
    function short(text) {
        gsub(/\047/, "", text)
        sub(/\(.*/, "", text)
        sub(/^void /, "", text)
        return text
    }
    /Compiling entry function/ {
        arch = $NF
        gsub(/\047/, "", arch)
        kernel = $0
        sub(/.*entry function \047/, "", kernel)
        sub(/\047 for .*/, "", kernel)
        kernel = short(kernel)
        is_entry = 1
    }
    /bytes stack frame/ && is_entry {
        stack = $1; spills = $5 + $9
    }
    /Used [0-9]+ registers/ && is_entry {
        shared = 0
        registers = $5
        if (match($0, /[0-9]+ bytes smem/))
            shared = substr($0, RSTART, RLENGTH) + 0
        if (all == "--list")
            printf "%s\t%s\t%d\t%d\t%d\t%d\n", arch, kernel, registers, stack, spills, shared
        limit = (kernel " " arch) in may ? may[kernel " " arch] : any
        if (stack > limit) {
            printf "%s, %s: %d bytes of a thread in memory (%d of spills), at most %d\n",
                kernel, arch, stack, spills, limit > "/dev/stderr"
            bad++
        }
        n++
        is_entry = 0
    }
    END {
        if (n == 0) {
            print "check_cuda_kernels: nothing is told of any kernel" > "/dev/stderr"
            exit 1
        }
        if (all != "--list")
            printf "CUDA kernels: %d of %d keep their registers\n", n - bad, n
        exit bad > 0
    }'
