#!/usr/bin/env bash
# Searches for all places of one kind of fault (README.md beside this file says what each found).
#   tests/cases/search.sh           names of the searches
#   tests/cases/search.sh NAME      its command, and its hits as FILE:LINE:TEXT
#   tests/cases/search.sh --counts  NAME FILE HITS of those whose places are noted in places.txt, which
#                                   tests/house/check_places.sh compares
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# NAME  PATTERN  FOLDERS: git grep -nE PATTERN in the C sources of these folders, without tests.
searches() {
    cat <<'END'
tensors   \blathe_(safetensors_open(_all|_joined)?|gguf_open|model_(config_)?weights)\( core
objects   \blathe_(model_json|model_read|model_texts_read|json_load_file)\(        core
json      \bjson_load(s|b|f|fd|_file|_callback)\(                                  core plugins
names     "[a-z_]+\.(json|model|jinja|txt|bin|safetensors)"                        core
ends      \blathe_tokenizer_eos\(|\bn_eos\b                                        core
fields    \b(lathe_record_take|json_object_get)\(                                  core/data
changes   \bjson_(decref|object_(set|del|clear|update)|array_(set|remove|clear|insert))[a-z_]*\( core/data core/chat
texts     \blathe_(tokenizer|encoder)_encode[a-z_]*\(|\blathe_text_join[a-z_]*\(   core
folders   \b(lathe_checkpoint_resolve|lathe_which_weights_find|lathe_model_folder_[a-z]+)\( core
compares  \blathe_(files_compare|adapter_base_(check|compare)|checkpoint_verify[a-z_]*)\( core
rows      \b(seq_len|row_tokens)\b                                                 core/run/api core/session core/jobs core/exec/program
lengths   \b(max_steps|epochs|total_steps)\b                                       core/train core/run core/session core/jobs
config    \blathe__config_[a-z_]+\(                                                core/model plugins
makes     \b(mkdir|mkdtemp|rename|renameat|lathe_dir_create)\(                     core plugins kernels
opens     (^|[^_a-z>.])(fopen|open|openat|freopen|mkfifo|opendir)\(                core plugins kernels
prints    (^|[^_a-z])(v?f?printf|f?puts|f?putc|putchar|fwrite|perror|psignal|json_dumpf(d)?)\( core plugins kernels
numbers   \b(strto(l|ll|ul|ull|d|f)|ato(i|l|ll|f)|sscanf)\(                        core plugins kernels
narrows   \((u?int(8|16|32)_t|int|float|unsigned|size_t)\)[[:blank:]]?\(?json_(integer|number|real)_value\( core plugins
children  \b(fork|vfork|posix_spawnp?|execvp?e?|system|popen)\(                    core plugins kernels
regexes   \breg(comp|exec)\(|\blathe_(regex|pattern)_[a-z_]*compile[a-z_]*\(       core plugins
nuls      \bstr(chr|pbrk|spn|cspn)\("                                              core plugins
refusals  LATHE_E_UNSUPPORTED                                                      core/model core/files core/checkpoint core/run plugins/quant plugins/models plugins/adapters
END
}

# A new hit of these is a new reader, writer or child: it is looked at before it is noted.
noted='tensors objects json makes opens narrows children regexes compares'

find_hits() { # NAME
    local name pattern folders
    while read -r name pattern folders; do
        [ "$name" = "$1" ] || continue
        local paths=()
        for folder in $folders; do
            paths+=("$folder/*.c" "$folder/*.cpp")
        done
        git grep -nE -e "$pattern" -- "${paths[@]}" ':!*/test_*' ':!*/bench_*' ':!core/check/harness/imports.c' || true
        return
    done < <(searches)
    printf 'no search is named %s\n' "$1" >&2
    return 2
}

# Functions of a plugin's table that no source of `lathe plugin check` names.
find_unchecked() {
    local header function
    for header in core/include/lathe/*.h; do
        for function in $(grep -oE '\(\*[a-z_0-9]+\)\(' "$header" | tr -d '(*)' | sort -u); do
            git grep -qE "(->|\.)$function\b" -- core/check || printf '%s: %s\n' "$header" "$function"
        done
    done
}

case "${1:-}" in
'')
    searches | awk '{ print $1 }'
    echo unchecked
    ;;
unchecked) find_unchecked ;;
--counts)
    for name in $noted; do
        find_hits "$name" | cut -d: -f1 | sort | uniq -c | awk -v name="$name" '{ print name, $2, $1 }'
    done
    ;;
*) find_hits "$1" ;;
esac
