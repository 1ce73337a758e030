#!/usr/bin/env bash
# check_cuda_cache.sh: checks that cmake/nvcc_cached.sh uses a cached result only for the same content, flags and compiler.
# A script replaces nvcc: it counts its compilations, and its result names its flags and the version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cached=$PWD/cmake/nvcc_cached.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export LATHE_CACHE=$dir/cache
mkdir "$dir/include"
cd "$dir"
echo 1 >version
: >compiled
cat >nvcc <<'SH'
#!/usr/bin/env bash
set -euo pipefail
here=$(dirname "$0")
words="$*"
while [ $# -gt 0 ]; do
    case "$1" in
        --version) cat "$here/version"; exit ;;
        -M) list=1 ;;
        -MF) depfile=$2; shift ;;
        -MT) target=$2; shift ;;
        -o) output=$2; shift ;;
        *.cu) source=$1 ;;
    esac
    shift
done
if [ -n "${list:-}" ]; then
    printf '%s: %s \\\n  %s\n' "$target" "$source" "$here/include/in\\ two\\ words.h" >"$depfile"
    exit
fi
[ -z "$(grep -x broken "$source")" ] || { echo "error: broken" >&2; exit 1; }
echo "$source" >>"$here/compiled"
printf 'ptxas info    : Used 7 registers\nwarning: seen\n' >&2
{ cat "$here/version" "$source" "$here/include/in two words.h"; echo "$words"; } >"$output"
SH
chmod +x nvcc
echo kernel >a.cu
echo constant >'include/in two words.h'

failures=0
# compiles COUNT WHAT FLAGS...: checks that COUNT more compilations were needed. WHAT is for the message.
compiles() {
    local expected=$1 what=$2 before after
    shift 2
    before=$(wc -l <compiled)
    rm -f a.o a.o.usage a.o.d
    "$cached" -c "$dir/a.o" "$dir/a.cu" "$dir/nvcc" "$@" 2>messages
    after=$(wc -l <compiled)
    if [ $((after - before)) -ne "$expected" ] || [ ! -s a.o ] || [ ! -s a.o.usage ] || [ ! -s a.o.d ]; then
        printf 'CUDA cache: %s: %d compilations, expected %d\n' "$what" $((after - before)) "$expected" >&2
        failures=$((failures + 1))
    fi
}

compiles 1 "the first time" -O3
grep -q '^warning: seen' messages || { echo "CUDA cache: a warning was lost" >&2; failures=$((failures + 1)); }
grep -q 'Used 7 registers' a.o.usage || { echo "CUDA cache: the registers were lost" >&2; failures=$((failures + 1)); }
cp a.o first
compiles 0 "the same again" -O3
cmp a.o first || failures=$((failures + 1))
compiles 0 "another include folder with the same files" -O3 -Ielsewhere
compiles 1 "another flag" -O2
echo other >'include/in two words.h'
compiles 1 "another header" -O3
echo constant >'include/in two words.h'
compiles 0 "the first header again" -O3
echo other >a.cu
compiles 1 "another source" -O3
echo 2 >version
compiles 1 "another nvcc" -O3
LATHE_CACHE=off compiles 1 "without a cache" -O3
echo broken >a.cu
for attempt in first second; do
    if "$cached" -c "$dir/a.o" "$dir/a.cu" "$dir/nvcc" -O3 2>messages || ! grep -q '^error: broken' messages; then
        echo "CUDA cache: the $attempt failure of a compilation was hidden" >&2
        failures=$((failures + 1))
    fi
done
[ "$failures" -eq 0 ] || exit 1
echo "CUDA cache: entries are used for the same content alone"
