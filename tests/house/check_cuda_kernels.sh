#!/usr/bin/env bash
# check_cuda_kernels.sh BUILD: fails when a CUDA kernel keeps more than two registers in memory, because they are spilled
# or belong to an array that is indexed at run time. Reads what ptxas reported when the kernels of BUILD were compiled
# (cmake/nvcc_cached.sh); fails also when there is no such report.
#
#   tests/house/check_cuda_kernels.sh BUILD [--list]
#
# --list: prints for each kernel: architecture, name, registers, bytes of stack, of spills, of shared memory.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: tests/house/check_cuda_kernels.sh BUILD [--list]" >&2; exit 2; }

# Bytes of stack that a kernel may have: two registers, which each thread writes and reads a few times in the L1 cache.
any=8
# Kernels that may have more, as kernel, architecture, bytes:
# make_dk_dv<4> of reference_cuda: ptxas uses only 128 registers on sm_100; on sm_90 it uses 178 and spills none. This
# backend is for problems that cuDNN does not support.
# backward<float, 1, 1> of softmax: for f32 rows that cannot be read four elements at a time, a warp keeps two rows in
# registers. ptxas keeps two registers in memory on sm_80 and sm_90a, and four on sm_89.
# gated_delta and mamba2 (plugins/ops/shared/scan_rule.h): some thirty addresses of parts of a chunk, which live through the
# whole kernel; each is read once for a product of up to 64 x 512 elements. On sm_100 ptxas keeps all of them in registers.
known=$'make_dk_dv<4>\tsm_100\t72\nbackward<float, 1, 1>\tsm_89\t16'
for arch in sm_80 sm_89 sm_90a; do
    for op in gated_delta mamba2; do
        known+=$'\n'"${op}_backward"$'\t'"$arch"$'\t296\n'"${op}_forward"$'\t'"$arch"$'\t320\n'"${op}_sum"$'\t'"$arch"$'\t16'
    done
done

find "$1" -name '*.usage' -exec cat {} + | { command c++filt 2>/dev/null || cat; } |
    awk -v any="$any" -v known="$known" -v all="${2:-}" '
    BEGIN {
        n_known = split(known, line, "\n")
        for (i = 1; i <= n_known; i++) {
            at = split(line[i], word, "\t")
            may[word[1] " " word[2]] = word[at]
        }
    }
    # the name of a kernel with its template arguments, without its parameters
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
            print "check_cuda_kernels: there is no report of ptxas about any kernel" > "/dev/stderr"
            exit 1
        }
        if (all != "--list")
            printf "CUDA kernels: %d of %d keep their registers\n", n - bad, n
        exit bad > 0
    }'
