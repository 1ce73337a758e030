#!/usr/bin/env bash
# Compares two builds of Lathe, bit by bit: a refactoring must not change what training computes.
#
#   tests/bits/compare.sh [--only REGEX] [--work FOLDER] [--alter KEY=VALUE] BEFORE AFTER
#
# BEFORE and AFTER are build folders (bin/lathe, lib/lathe/plugins; tests/far and tests/emulated where they are built).
# Each line of runs.txt is a run of a few steps that both builds make, at the same time. Of each run these are compared:
# the tensors of every checkpoint (weights, adapters, the optimizer's state), state/run.json, every figure of
# metrics.jsonl except times, and the output of `eval` and `generate` where the line asks for them. One line is printed
# per run: "equal", or the first difference and the largest relative difference. A difference is relative to the largest
# element of its tensor, or to the figure. A run in exceptions.txt may differ by the bound that is given there.
#
# --only REGEX: the runs whose names match. --work FOLDER: where the runs are made; kept (default: a temporary folder,
# kept only when runs differ). --alter KEY=VALUE: a further setting for the runs of AFTER, to see that a difference is
# found. LIMIT in the environment: seconds after which a command is stopped (120).
#
# A line "skipped" names what one of the builds lacks. To build the two:
#   git worktree add /tmp/before COMMIT && cd /tmp/before && ./dev build
# Exit status: 0 all equal or as listed, 1 a difference or a failed run, 2 wrong arguments.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
only='' work='' alter='' limit=${LIMIT:-120}
usage() {
    echo "usage: tests/bits/compare.sh [--only REGEX] [--work FOLDER] [--alter KEY=VALUE] BEFORE AFTER" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case "$1" in
        --only | --work | --alter)
            [ $# -ge 2 ] || usage
            declare "${1#--}=$2"
            shift 2
            ;;
        -*) usage ;;
        *) break ;;
    esac
done
[ $# = 2 ] || usage
for tree in "$1" "$2"; do
    { [ -x "$tree/bin/lathe" ] && [ -d "$tree/lib/lathe/plugins" ]; } ||
        { echo "compare.sh: $tree is not a build folder: it has no bin/lathe or no lib/lathe/plugins" >&2; exit 2; }
done
before=$(cd "$1" && pwd) after=$(cd "$2" && pwd)
keep=$work
[ -n "$work" ] || work=$(mktemp -d "${TMPDIR:-/tmp}/lathe_bits_XXXXXX")
mkdir -p "$work"
[ -z "$(ls -A "$work")" ] || { echo "compare.sh: the folder $work is not empty" >&2; exit 2; }
work=$(cd "$work" && pwd)
cp "$here/run.toml" "$work"
awk -v seed=7 -v lines=200 -f "$here/text.awk" >"$work/text.txt"
awk -v seed=8 -v lines=40 -v pairs=1 -f "$here/text.awk" >"$work/pairs.jsonl"
export OMP_WAIT_POLICY=passive
unset LATHE_PLUGIN_PATH LATHE_PLUGIN_OVERRIDE LATHE_EMULATOR

# ---- one run of one build ----

# The folder of the test plugins that a device needs; nothing for a device of the product.
plugins_of() { # DEVICE
    case "$1" in
        far*) echo tests/far ;;
        cuda) echo tests/emulated ;;
    esac
}

# Lets the plugins of a folder take the names of the built-in ones.
use_plugins() { # FOLDER
    LATHE_PLUGIN_PATH=$1
    LATHE_PLUGIN_OVERRIDE=$(cd "$1" && printf '%s\n' */*.so | sed 's/[.]so$//' | paste -sd:)
    export LATHE_PLUGIN_PATH LATHE_PLUGIN_OVERRIDE
}

# Runs `lathe`; its first error is kept when it fails.
lathe() { # TREE OUTPUT ARGUMENTS...
    timeout "$limit" "$1/bin/lathe" "${@:3}" >"$2" 2>log ||
        { echo "lathe $3: $(grep -m 1 error log || tail -n 1 log)" >failed; return 1; }
}

# The settings of a new model of 40,000 parameters.
model_settings() { # llama|qwen3|gpt2|mixtral
    case "$1" in
        gpt2) echo model.n_embd=32 model.n_layer=2 model.n_head=2 model.n_positions=64 ;;
        mixtral) echo model.num_attention_heads=4 model.num_key_value_heads=2 model.num_local_experts=4 model.output_router_logits=true model.router_aux_loss_coef=0.1 ;;
        qwen3) echo model.head_dim=16 model.num_attention_heads=4 model.num_key_value_heads=2 ;;
        llama) echo model.num_attention_heads=4 model.num_key_value_heads=2 ;;
    esac
    [ "$1" = gpt2 ] || echo model.hidden_size=32 model.intermediate_size=64 model.num_hidden_layers=2 model.max_position_embeddings=64
    echo "model.model_type=$1"
}

# The settings of a list as options, without those of some sections.
options_without() { # SECTIONS(a|b) SETTINGS...
    local setting
    for setting in "${@:2}"; do
        [[ $setting =~ ^($1)[.] ]] || printf '%s\n' "--${setting%%=*}" "${setting#*=}"
    done
}

# Trains a teacher for a step, and stores its numbers in the folder "stored".
make_stored() { # TREE DEVICE SETTINGS...
    local plain stored
    mapfile -t plain < <(options_without 'adapter|stage|teacher' "${@:3}")
    mapfile -t stored < <(options_without teacher "${@:3}")
    lathe "$1" teacher.out train ../../run.toml --device.name "$2" --data.cache_dir cache "${plain[@]}" --stage.name sft \
        --train.max_steps 1 --model.seed 11 --checkpoint.dir teacher || return 1
    lathe "$1" stored.out logprobs ../../run.toml --device.name "$2" --data.cache_dir cache "${stored[@]}" --top-k 5 \
        --teacher.path teacher/step-00000001 --output stored
}

# Makes the run in the current folder. WHAT: + between words. resume: stops after half of the steps and goes on; text:
# generates, greedily and sampled; eval: evaluates; store: stores a teacher's numbers first.
make_run() { # TREE DEVICE MODEL WHAT SETTINGS...
    local tree=$1 device=$2 what=+$4+ folder setting settings=()
    # shellcheck disable=SC2046 # words
    set -- $(model_settings "$3") "${@:5}"
    folder=$(plugins_of "$device")
    [ -z "$folder" ] || use_plugins "$tree/$folder"
    for setting in "$@"; do
        settings+=("--${setting%%=*}" "${setting#*=}")
    done
    local train=(train ../../run.toml --device.name "$device" --checkpoint.dir out --data.cache_dir cache "${settings[@]}")
    case "$device" in
        far*) train+=(--attention.name far_reference) ;;
        cuda) train+=(--attention.name reference_cuda) ;;
    esac
    if [[ $what == *+store+* ]]; then
        make_stored "$tree" "$device" "$@" || return 1
    fi
    if [[ $what == *+resume+* ]]; then
        lathe "$tree" train.first "${train[@]}" --train.stop_after 2 || return 1
    fi
    lathe "$tree" train.out "${train[@]}" || return 1
    if [[ $what == *+eval+* ]]; then
        lathe "$tree" eval.txt eval "${train[@]:1}" --data ../../text.txt --json || return 1
    fi
    if [[ $what == *+text+* ]]; then
        lathe "$tree" greedy.txt generate "${train[@]:1}" --prompt "the lathe" --max-new-tokens 24 --ignore-eos --temperature 0 || return 1
        lathe "$tree" sampled.txt generate "${train[@]:1}" --prompt "one piece" --max-new-tokens 24 --ignore-eos --temperature 0.9 \
            --top-k 40 --top-p 0.95 --repetition-penalty 1.1 --seed 5 || return 1
    fi
}

# ---- comparing two files ----

# Adds a difference to the file "found": RELATIVE WHAT...
found() { echo "$*" >>found; }

# name dtype first-byte bytes of every tensor of a safetensors file
tensors() { # FILE
    local n
    n=$(od -A n -t u8 -N 8 "$1" | tr -d ' ')
    head -c $((n + 8)) "$1" | tail -c "$n" |
        grep -oE '"[^"]+": *\{"dtype": *"[A-Z0-9_]+", *"shape": *\[[0-9, ]*\], *"data_offsets": *\[[0-9]+, *[0-9]+\]' |
        sed -E 's/^"([^"]+)": *\{"dtype": *"([A-Z0-9_]+)".*\[([0-9]+), *([0-9]+)\]$/\1 \2 \3 \4/' |
        awk -v base=$((n + 8)) '{print $1, $2, base + $3, $4 - $3}'
}

elements() { # FILE DTYPE FIRST BYTES
    local type
    case "$2" in
        F64) type='f8 -w8' ;;
        F32) type='f4 -w4' ;;
        F16 | BF16 | U16) type='u2 -w2' ;;
        I64) type='d8 -w8' ;;
        I32) type='d4 -w4' ;;
        *) type='u1 -w1' ;;
    esac
    # shellcheck disable=SC2086 # two words
    od -A n -v -t $type -j "$3" -N "$4" "$1"
}

compare_tensors() { # FILE
    local name dtype begin bytes other_dtype other_begin other_bytes relative first
    [ -e "before/$1" ] || { found "inf $1: only after has it"; return; }
    [ -e "after/$1" ] || { found "inf $1: only before has it"; return; }
    cmp -s "before/$1" "after/$1" && return
    tensors "before/$1" | sort >tensors.before
    tensors "after/$1" | sort >tensors.after
    while read -r name dtype begin bytes other_dtype other_begin other_bytes; do
        if [ "$dtype $bytes" != "$other_dtype $other_bytes" ]; then
            found "inf $1: $name: before $dtype of $bytes bytes, after $other_dtype of $other_bytes bytes"
        elif ! cmp -s -i "$begin:$other_begin" -n "$bytes" "before/$1" "after/$1"; then
            read -r relative first < <(paste <(elements "before/$1" "$dtype" "$begin" "$bytes") \
                <(elements "after/$1" "$dtype" "$other_begin" "$bytes") | awk -v dtype="$dtype" -f "$here/tensors.awk")
            # shellcheck disable=SC2086 # three words
            found "$relative $1: $(printf '%s[%s]: %s -> %s' "$name" $first)"
        fi
    done < <(join -a 1 -a 2 -e - -o 0,1.2,1.3,1.4,2.2,2.3,2.4 tensors.before tensors.after)
}

compare_text() { # FILE
    cmp -s "before/$1" "after/$1" && return
    found "1 $1: $(diff "before/$1" "after/$1" 2>&1 | sed -n '2,4p' | tr '\n' ' ' | cut -c 1-160)"
}

# compare_figures SCRIPT FILE: flat JSON (metrics.awk) or state/run.json (state.awk)
compare_figures() {
    local relative what
    [ -e "after/$2" ] || { found "inf $2: only before has it"; return; }
    while read -r relative what; do
        if [ "$relative" = note ]; then echo "$what" >>notes; else found "$relative $2: $what"; fi
    done < <(awk -v before_file="before/$2" -v after_file="after/$2" -f "$here/$1" </dev/null)
}

compare_all() {
    local file name
    : >found
    : >notes
    for name in before after; do
        [ ! -e "$name/failed" ] || found "inf $name failed: $(cat "$name/failed")"
    done
    [ ! -s found ] || return 0
    compare_figures metrics.awk out/metrics.jsonl
    while IFS= read -r file; do
        case "$file" in
            */state/run.json) compare_figures state.awk "$file" ;;
            *.safetensors) compare_tensors "$file" ;;
            eval.txt) compare_figures metrics.awk "$file" ;;
            out/samples.jsonl | out/latest | greedy.txt | sampled.txt) compare_text "$file" ;;
        esac
    done < <( (cd before && find . -type f; cd ../after && find . -type f) | sed 's|^[.]/||' | sort -u)
}

# ---- all runs ----

n_equal=0 n_listed=0 n_different=0 n_skipped=0
report() { printf '%-24s %s\n' "$1" "$2"; }

# Prints the parts for a device that one of the builds lacks.
lacks() { # DEVICE
    local folder tree
    folder=$(plugins_of "$1")
    for tree in "$before" "$after"; do
        [ -z "$folder" ] || [ -e "$tree/$folder/device/$1.so" ] || { echo "$tree has no $folder/device/$1.so"; return; }
        [ -n "$folder" ] || [ "$1" = cpu ] || [ -e "$tree/lib/lathe/plugins/device/$1.so" ] || { echo "$tree has no device $1"; return; }
    done
}

judge() { # NAME
    local worst first bound reason
    if [ ! -s found ]; then
        n_equal=$((n_equal + 1))
        report "$1" "equal$(sed 's/^/; /' notes | tr -d '\n')"
        return
    fi
    worst=$(awk '{x = $1 == "inf" ? 1e30 : $1 + 0} x > m {m = x; w = $1} END {print w == "" ? 0 : w}' found)
    first=$(head -n 1 found | cut -d ' ' -f 2-)
    IFS='|' read -r _ bound reason < <(sed -E 's/ *[|] */|/g' "$here/exceptions.txt" | grep "^$1|" || true) || true
    if [ -n "$bound" ] && [ "$worst" != inf ] && awk -v a="$worst" -v b="$bound" 'BEGIN {exit !(a + 0 <= b + 0)}'; then
        n_listed=$((n_listed + 1))
        report "$1" "differs by $worst, at most $bound is listed: $reason"
    else
        n_different=$((n_different + 1))
        report "$1" "DIFFERS by $worst at most, in $(wc -l <found) places; first: $first"
    fi
}

one_run() { # NAME DEVICE MODEL WHAT SETTINGS...
    local name=$1 tree lack jobs=() extra
    lack=$(lacks "$2")
    if [ -n "$lack" ]; then
        n_skipped=$((n_skipped + 1))
        report "$name" "skipped: $lack"
        return
    fi
    for tree in before after; do
        mkdir -p "$work/$name/$tree"
        extra=()
        [ "$tree" = before ] || [ -z "$alter" ] || extra=("$alter")
        (cd "$work/$name/$tree" && make_run "${!tree}" "${@:2}" "${extra[@]}") &
        jobs+=($!)
    done
    wait "${jobs[@]}" || true
    cd "$work/$name"
    compare_all
    judge "$name"
    cd "$work"
    [ -n "$keep" ] || [ -s "$work/$name/found" ] || rm -r "${work:?}/$name"
}

while read -r name device model what settings; do
    case "$name" in '' | '#'*) continue ;; esac
    [[ $name =~ $only ]] || continue
    eval "set -- $settings" # quotes as in the shell
    one_run "$name" "$device" "$model" "$what" "$@" </dev/null
done <"$here/runs.txt"

printf '%d equal, %d as listed in exceptions.txt, %d different, %d skipped\n' \
    $n_equal $n_listed $n_different $n_skipped
[ $((n_equal + n_listed + n_different)) -gt 0 ] || { echo "no run was made" >&2; exit 2; }
if [ $n_different -gt 0 ]; then
    echo "the runs are in $work"
    exit 1
fi
[ -n "$keep" ] || rm -r "$work"
