#!/usr/bin/env bash
# Checks rules for sources that a compiler does not check: reasons for long files, includes of plugins and of public
# headers, names of files, folders at the top of the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failures=0
fail() {
    printf 'rule: %s\n' "$*" >&2
    failures=$((failures + 1))
}

mapfile -t files < <(find core kernels plugins tests bench examples -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort)

# A file is as long as its noun; above 800 lines its head says why.
while read -r lines file; do
    [ "$file" != total ] || continue
    if [ "$lines" -gt 800 ] && ! grep -q 'Above 800 lines because ' <<<"$(head -n 25 "$file" | tr -s ' *\n' ' ')"; then
        fail "$file has $lines lines; above 800 its first comment says \"Above 800 lines because ...\""
    fi
done < <(printf '%s\0' "${files[@]}" | xargs -0 wc -l)

# Lines have at most 100 columns, comments too: clang-format wraps a comment that is wider, so lists and
# formulas in comments are wrapped by hand (.clang-format: ReflowComments).
grep -qx 'ReflowComments: true' .clang-format || fail '.clang-format does not say "ReflowComments: true"'
grep -qx 'ColumnLimit: 100' .clang-format || fail '.clang-format does not say "ColumnLimit: 100"'
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line is wider than 100 columns"
done < <({ printf '%s\0' "${files[@]}"; find core kernels plugins tests -name '*.inc' -print0; } |
    LC_ALL=C.UTF-8 xargs -0 grep -noE '^.{101}' | cut -d: -f1,2)

# A comment is a sentence, or a noun phrase that can be read alone: "What it needs." and "The same for rows." cannot.
begins='(What|Of|As|The same|Those|There|Also)([^[:alnum:]_]|$)'
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line begins a comment with a word that needs what stands before it (CONTRIBUTING.md: What a change needs)"
done < <({ printf '%s\0' "${files[@]}"; find core kernels plugins tests -name '*.inc' -print0; } |
    LC_ALL=C xargs -0 awk -v begins="$begins" 'BEGIN {
        start = "(/[*][*!<]*|//[/!<]*)"
        first = "^[ \t]*[*][ \t]*" begins
    }
    FNR == 1 { is_open = 0 }
    { text = $0; gsub(/"([^"\\]|\\.)*"/, "", text) } # a comment in a string is none
    text ~ start "[ \t]*" begins || (is_open && text ~ first) { print FILENAME ":" FNR }
    { is_open = text ~ start "[ \t]*$" }')

# Code reads an error's code, key and place, never its text: no function that compares or searches texts gets a message,
# by the call that gives it, by the name of a variable, or by a variable that was filled with it in the same file.
# core/check judges the form of a plugin's reason (one line, the same twice), which decides nothing.
compares='(str(str|casestr|cmp|ncmp|casecmp|ncasecmp|chr|rchr|spn|cspn|pbrk)|mem(cmp|mem|chr)|sscanf|regexec|(starts|begins|ends)_with|is_listed)[(]'
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line looks into the text of an error: take its key or place (core/base/error.h)"
done < <(find core plugins kernels -type f \( -name '*.[ch]' -o -name '*.cpp' \) ! -name 'test_*' ! -path core/base/error.c -print0 |
    LC_ALL=C xargs -0 awk -v compares="$compares" 'FNR == 1 { split("", held); filled = "" }
    {
        gives = "lathe_error_(message|words|line)[(]"
        names = "(message|refusal|failure|reason" (FILENAME ~ /^core\/check\// ? "" : "|why") ")"
    }
    match($0, "[a-z_.>-]+ = [^;]*" gives) { name = substr($0, RSTART); sub(/ = .*/, "", name); held[name] }
    match($0, /(snprintf|strdup|copy|memcpy)[(][a-z_.>-]+,/) {
        filled = substr($0, RSTART, RLENGTH - 1)
        sub(/.*[(]/, "", filled)
    }
    filled != "" && $0 ~ gives { held[filled] }
    /;/ { filled = "" }
    $0 ~ compares {
        found = $0 ~ compares "([^;]*[ (,*])?" gives || $0 ~ compares "[^;]*(->|[.])message[,) ]" ||
                $0 ~ compares "([^;]*[ (,*])?" names "[,) []"
        for (name in held)
            found = found || $0 ~ compares "([^;]*[ (,*])?" name "[,) []"
        if (found) print FILENAME ":" FNR
    }')

# A command sees values of a run (run/api/run_facts.h, run/plan/plan_figures.h, ...), never its state.
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line reads the state of a run: take values of it (docs/design/062-jobs.md)"
done < <(grep -rnE '\brun->' core/cmd --include='*.[ch]' | cut -d: -f1,2)

# The comment of every function in a table of the ABI begins with its call contract (core/include/lathe/abi.h).
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line has no call contract: begin its comment with [any], [pure], [open], [build], [step] or [between]"
done < <(awk '/\/\*\*/ { open = 1; contract = 0 }
    /\/\*\* \[(any|pure|open|build|step|between)\]/ { contract = 1 }
    /^    [a-z].*\(\*[a-z_0-9]+\)\(/ { if (!contract) print FILENAME ":" FNR; contract = 0 }' core/include/lathe/*.h)

# Headers of the C library and of the compiler that plugins may use. oneDNN and OpenMP are for devices.
libc='assert|ctype|errno|fenv|float|inttypes|limits|math|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|time|complex|tgmath|dirent|fcntl|unistd|dlfcn|poll|sched|signal|spawn|immintrin|cpuid|x86intrin|regex|sys/[a-z]+'
cuda='cuda_runtime|cuda_runtime_api|cuda_bf16|cuda_fp16|cublasLt|cuda|curand_kernel'
public="^\"lathe/(kit/)?[a-z0-9_]+\.h\"\$|^<lathe/(kit/)?[a-z0-9_]+\.h>\$|^<($libc)\.h>\$"
while IFS= read -r line; do
    [ -n "$line" ] || continue
    file=${line%%:*}
    include=${line#*:}
    if [[ "$include" =~ \#[[:space:]]*include[[:space:]]*([\<\"][^\>\"]+[\>\"]) ]]; then
        include=${BASH_REMATCH[1]}
    fi
    case "$file" in
        */test_* | */bench_*) continue ;; # a plugin's test sees more
    esac
    if [[ "$include" =~ $public ]]; then
        continue
    fi
    case "$file:$include" in
        plugins/*:'"shared/'*) # what plugins of one kind share
            [ -e "$(cut -d/ -f1-2 <<<"$file")/${include//\"/}" ] && continue
            ;;
        *:'"'*) # a file of the plugin's own folder (devices: of their folder, or what all of them share)
            name=${include//\"/}
            if [[ "$name" != *..* ]] && { [ -e "${file%/*}/$name" ] || [[ "$file" == kernels/* && "$name" == shared/* && -e kernels/$name ]] || [[ "$file" == kernels/* && -n "$(find "$(cut -d/ -f1-2 <<<"$file")" -path "*/$name" -print -quit)" ]]; }; then
                continue
            fi
            ;;
    esac
    case "$file" in
        kernels/cpu/*) grep -qE '^<(dnnl|dnnl_[a-z]+|oneapi/dnnl/[a-z_]+|omp)\.h(pp)?>$' <<<"$include" && continue ;;
        plugins/readers/arrow/*.cpp) # the C shim around a C++ library
            grep -qE '^<(algorithm|cerrno|cstdio|cstring|exception|memory|string|vector|(arrow|parquet)/[a-z_/]+\.h)>$' <<<"$include" && continue ;;
        plugins/collectives/mpi/mpi_shim.c) [ "$include" = '<mpi.h>' ] && continue ;;
        kernels/cuda/* | plugins/attention/*_cuda/* | *.cu | *.cuh) grep -qE "^<($cuda|cudnn)\.h(pp)?>$" <<<"$include" && continue
            [ "$include" = '"emulator.h"' ] && continue ;; # kernels as host code, in tests only
    esac
    fail "$file includes $include: plugins see \"lathe/*.h\" and the C library only"
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' -r plugins kernels examples --include='*.c' --include='*.h' \
    --include='*.cu' --include='*.cuh' --include='*.cpp' 2>/dev/null | sed -E 's/^([^:]+):[0-9]+:/\1:/' || true)

# The sources of a device are in rooms, which its CMakeLists.txt lists, each after those that it may include.
for device in cpu cuda; do
    higher=$(sed -n 's/^set(rooms \(.*\))$/\1/p' "kernels/$device/CMakeLists.txt")
    [ -n "$higher" ] || fail "kernels/$device/CMakeLists.txt lists no rooms"
    stray=$(find "kernels/$device" -maxdepth 1 -name '*.[ch]*' -printf '%f ')
    [ -z "$stray" ] || fail "kernels/$device holds files beside its rooms: $stray"
    while [ -n "$higher" ]; do
        room=${higher%% *}
        higher=${higher#"$room"}
        higher=${higher# }
        [ -e "kernels/$device/$room/README.md" ] || fail "kernels/$device/$room has no README.md"
        [ -n "$higher" ] || continue
        while IFS= read -r line; do
            [ -z "$line" ] || fail "$line includes a room above its own (the order of rooms: kernels/$device/CMakeLists.txt)"
        done < <(grep -nE "^#include \"(${higher// /|})/" -r "kernels/$device/$room" | cut -d: -f1,2 || true)
    done
done

# A field of a record is read with lathe_record_take and a name of the list in core/data/records/record_keys.c: it is then
# noted as read, and tests/cases/data/test_record_keys_cases.c asks for its entry.
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line reads a field of a record by a name of its own: use lathe_record_take (data/records/record_keys.h)"
done < <(grep -nE 'json_object_get\((s->)?row, *("|LATHE_RECORD_)' -r core/data/records core/data/conversation core/data/rows --include='*.c' |
    cut -d: -f1,2 || true)

# Every public header compiles by itself as C11.
if command -v "${CC:-gcc}" >/dev/null; then
    for header in core/include/lathe/*.h core/include/lathe/kit/*.h; do
        [[ "$header" == *_cuda.h ]] && continue
        echo "#include \"${header#core/include/}\"" | "${CC:-gcc}" -std=c11 -Wall -Wextra -Wpedantic -Werror \
            -fsyntax-only -Icore/include -xc - || fail "$header does not compile alone as C11"
    done
fi

# One PTX serves several architectures (cmake/LatheCuda.cmake), except for a source that compares __CUDA_ARCH__ itself.
while IFS= read -r header; do
    [ -z "$header" ] || fail "$header compares __CUDA_ARCH__: only the .cu file or the plugin's .c file may"
done < <(grep -rlE '__CUDA_ARCH__ *[<>=!]' core kernels plugins --include='*.h' --include='*.cuh' || true)

# An update has one path for host and device: only the choice of the updater depends on the kind of memory.
asked=$(grep -rhoE 'lathe_machine_memory|->is_host' core/optim --include='*.c' --include='*.h' | wc -l)
[ "$asked" -eq 1 ] || fail "core/optim asks $asked times about the device's memory; 1 (the choice of lathe_updater_ops in update.c) is allowed"

# Code asks a kind of memory the question that it has (exec/store/memory_kind.h); which kind it is only its table knows.
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line asks which kind of memory a device has: ask lathe_machine_memory (exec/store/memory_kind.h)"
done < <(grep -rnE 'info\.host_memory|device->host_memory|LATHE_MEMORY_(OWN|HOST|UNIFIED)' core --include='*.c' --include='*.h' |
    grep -vE '^core/(include/|exec/store/(memory_kind\.h|transfer\.c)|plug/instance\.c|check/harness/attention_trial\.c)' | cut -d: -f1,2 || true)

# Text reaches standard output and standard error through core/base/print.c alone, which prints names of foreign files
# without their escape sequences. The listed files write data files, or stand in for the C library of a plugin.
writers=' core/base/print.c core/base/output_file.c core/check/harness/imports.c core/metrics/metrics.c core/metrics/tensorboard.c core/data/rows/logprob_file.c core/data/rows/shard_file.c core/train/training_sample.c '
while IFS= read -r line; do
    [ -z "$line" ] || [[ "$writers" == *" ${line%%:*} "* ]] ||
        fail "$line writes to a stream by itself: lathe_print and its kin do (base/print.h)"
done < <(grep -rnE '(^|[^_a-z])(printf|fprintf|vprintf|vfprintf|puts|fputs|fputc|putc|putchar|fwrite|perror|psignal|json_dumpf|json_dumpfd)\(' \
    core --include='*.c' | grep -vE 'format\(printf' | cut -d: -f1,2 || true)

# Opening a pipe waits for its other end, and no signal ends that wait; lathe_file_open, lathe_file_stream and
# lathe_file_append (base/fs.h) refuse one at once. The listed files open files of the system, or temporary files of their
# own, or stand in for the C library of a plugin.
openers=' core/base/fs.c core/check/harness/imports.c core/cmd/main/cmd_train.c core/cmd/main/launch_job.c core/cmd/plugins/doctor_cpu.c core/data/rows/logprob_file.c core/data/rows/shard_file.c core/base/host_memory.c core/base/process.c core/view/run_pulse.c core/parallel/ranks/failure_files.c core/check/kinds/check_reader.c '
while IFS= read -r line; do
    [ -z "$line" ] || [[ "$openers" == *" ${line%%:*} "* ]] ||
        fail "$line may open a pipe and wait: use lathe_file_open, lathe_file_stream or lathe_file_append (base/fs.h), or O_NONBLOCK"
done < <({
    grep -rnE '(^|[^_a-z>.])fopen\(' core --include='*.c'
    grep -rnE '(^|[^_a-z>.])open\(.*O_(RDONLY|APPEND)' core --include='*.c' | grep -vE 'O_NONBLOCK|O_DIRECTORY|/dev/null'
} | cut -d: -f1,2 || true)

# A new reader of foreign files, writer of folders, child or regular expression is looked at once, for the kind of fault
# that tests/cases/README.md describes, and then noted.
while IFS= read -r line; do
    [ -z "$line" ] || fail "tests/cases/places.txt: $line: see what tests/cases/README.md says of this search, then note it: tests/cases/search.sh --counts >tests/cases/places.txt"
done < <(diff <(tests/cases/search.sh --counts) tests/cases/places.txt | grep '^[<>]' || true)

# strchr("abc", c) also finds the NUL that ends its set, so a NUL of a foreign text passes for one of them.
while IFS= read -r line; do
    [ -z "$line" ] || fail "$line: lathe_is_one_of(c, \"...\") of base/utf8.h, which does not find NUL"
done < <(grep -rnE '(^|[^_a-z])strchr\("' core --include='*.c' --include='*.h' | cut -d: -f1,2 || true)

# Names of files in core and of headers in kernels are unique, so that a name says which file is meant.
while IFS= read -r name; do
    [ -z "$name" ] || fail "two files of core are called $name"
done < <(find core \( -name '*.c' -o -name '*.h' \) -printf '%f\n' | sort | uniq -d)
while IFS= read -r name; do
    [ -z "$name" ] || fail "two headers of kernels are called $name"
done < <(find kernels -name '*.h' -printf '%f\n' | sort | uniq -d)

# A page of docs/design has a number of its own, and what refers to a page names one that is there.
while IFS= read -r number; do
    [ -z "$number" ] || fail "two pages of docs/design have the number $number"
done < <(ls docs/design | cut -c1-3 | sort | uniq -d)
while IFS=: read -r file line page; do
    [ -n "$page" ] || continue
    compgen -G "docs/$page*.md" >/dev/null || fail "$file:$line refers to docs/$page, which is not there"
done < <(git grep -noE 'design/[0-9]{3}(-[a-z0-9-]+[a-z0-9])?' -- . ':!CHANGELOG.md' || true)

allowed=' core kernels plugins tests bench examples docs cmake '
for folder in */; do
    folder=${folder%/}
    case "$folder" in build | build-* | out) continue ;; esac
    [[ "$allowed" == *" $folder "* ]] || git check-ignore -q "$folder" 2>/dev/null || fail "$folder/ at the top: not one of$allowed"
done

if [ "$failures" -gt 0 ]; then
    printf '%d rules broken\n' "$failures" >&2
    exit 1
fi
printf 'house rules: %d files pass\n' "${#files[@]}"
