#!/usr/bin/env bash
# check_plugins.sh FOLDER: checks that every plugin exports one symbol and needs only libc and libm. A device may also
# need its math library and OpenMP; plugins with CUDA code may need the C++ runtime.
set -euo pipefail
folder=$1
command -v readelf >/dev/null || { echo "readelf is missing: install binutils" >&2; exit 1; }

failures=0 count=0
fail() {
    printf '%s: %s\n' "$1" "$2" >&2
    failures=$((failures + 1))
}

while IFS= read -r so; do
    count=$((count + 1))
    kind=$(basename "$(dirname "$so")")
    # Defined dynamic symbols, without those that a sanitizer adds.
    exported=$(readelf --dyn-syms -W "$so" | awk '$7 != "UND" && $5 != "LOCAL" && NR > 3 && NF >= 8 {print $8}' |
        grep -vE '^(__asan|__ubsan|__lsan|__odr_asan)' | sort -u | tr '\n' ' ' || true)
    if [ "$kind/$(basename "$so")" = reader/arrow-shim.so ]; then # no plugin: the C shim around Apache Arrow
        [ "$exported" = "lathe_arrow_shim " ] || fail "$so" "exports '$exported', expected lathe_arrow_shim alone"
        continue
    fi
    if [ "$kind/$(basename "$so")" = collective/mpi-shim.so ]; then # no plugin: the functions of MPI
        [ "$exported" = "lathe_mpi_shim " ] || fail "$so" "exports '$exported', expected lathe_mpi_shim alone"
        continue
    fi
    [ "$exported" = "lathe_plugin_v1 " ] || fail "$so" "exports '$exported', expected lathe_plugin_v1 alone"
    allowed='libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1|libasan\.so\.[0-9]+|libubsan\.so\.[0-9]+'
    case "$kind" in
        device) allowed="$allowed|libdnnl\.so\.[0-9]+|libgomp\.so\.1|libgcc_s\.so\.1|libcudart\.so\.[0-9]+|libcublasLt\.so\.[0-9]+|libcudnn[a-z_]*\.so\.[0-9]+|libcuda\.so\.1|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|libstdc\+\+\.so\.6" ;;
        attention) # cudart is linked in; nvcc's objects are C++
            [[ "$so" != *_cuda.so && "$so" != */cudnn.so ]] || allowed="$allowed|libgcc_s\.so\.1|libstdc\+\+\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1" ;;
    esac
    while IFS= read -r needed; do
        [ -n "$needed" ] || continue
        grep -qxE "$allowed" <<<"$needed" || fail "$so" "needs $needed"
    done < <(readelf -d -W "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
done < <(find "$folder" -name '*.so' 2>/dev/null | sort)

if [ "$failures" -gt 0 ]; then
    printf '%d faults in %d plugins\n' "$failures" "$count" >&2
    exit 1
fi
printf 'plugins: %d, each exports lathe_plugin_v1 alone and needs only what it may\n' "$count"
