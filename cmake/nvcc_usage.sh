#!/bin/sh
# nvcc_usage.sh FILE COMMAND...: runs a compilation with ptxas -v. What that tells of each kernel goes to FILE, for
# tests/house/check_cuda_kernels.sh; the rest of stderr stays there.
usage=$1
shift
"$@" 2>"$usage.err"
status=$?
told='^ptxas info\|^ *[0-9]* bytes stack frame'
grep "$told" "$usage.err" >"$usage"
grep -v "$told" "$usage.err" >&2
rm -f "$usage.err"
exit $status
