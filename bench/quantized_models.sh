#!/usr/bin/env bash
# One model in every quantization format: bits, size, error, perplexity, speed of generation. Prints rows of the table
# in docs/quantization.md.
#
#   bench/quantized_models.sh MODEL TEXT CALIBRATION OUT [ROUNDS]
#
# MODEL is a Hugging Face folder with plain weights; TEXT gives the perplexity, CALIBRATION the rows of gptq and awq. OUT
# gets a folder for each format (tests/golden/check_quantized.py reads them with the formats' libraries); those that are
# there are not made again. The speed is that of one sequence over the plain model's, measured in turn, the median of
# ROUNDS (9) such ratios, with the least and the largest. BUILD: the build folder (build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

model=$(realpath "$1") text=$(realpath "$2") calibration=$(realpath "$3") out=$4 rounds=${5:-9}
build=${BUILD:-build}
lathe=$build/bin/lathe
ninja -C "$build" bench_decode >/dev/null
mkdir -p "$out"

formats=(
    "int8" "eetq" "fp8 scaling=row" "fp8" "awq group_size=64" "awq group_size=64 scale_inputs=false"
    "gptq group_size=64" "gptq group_size=64 symmetric=false" "gptq group_size=64 act_order=none"
    "nvfp4" "hqq" "nf4" "mxfp4"
)

speed() { # FOLDER: tokens/s of one sequence
    chrt -r 1 "$build/bench/bench_decode" "$1" 1 train.threads=2 2>/dev/null | sed -n 's/^decode_tokens_per_s //p'
}

for format in "${formats[@]}"; do
    read -ra words <<<"$format"
    folder=$out/$(tr ' =' '--' <<<"$format")
    options=(--quant.name "${words[0]}")
    for setting in "${words[@]:1}"; do
        options+=("--quant.${setting%%=*}" "${setting#*=}")
    done
    case ${words[0]} in gptq | awq) options+=(--calibration "$calibration" --rows 32) ;; esac
    if [ ! -e "$folder" ]; then
        "$lathe" quantize "$model" "${options[@]}" --text "$text" --data.seq_len 512 --train.precision bf16 --json -o "$folder" >"$folder.json"
    fi
    for ((round = 0; round < rounds; round++)); do
        plain=$(speed "$model")
        packed=$(speed "$folder")
        awk -v a="$packed" -v b="$plain" 'BEGIN {print a / b}'
    done | sort -g >"$folder.speed"
    ratio=$(awk '{x[NR] = $1} END {printf "%.2f (%.2f to %.2f)", x[int((NR + 1) / 2)], x[1], x[NR]}' "$folder.speed")
    jq -r --arg format "$format" --arg ratio "$ratio" \
        '"| \($format) | \(.bits) | \(.bytes) | \(.relative_error) | \(.perplexity) | \(.perplexity_before) | \($ratio) |"' "$folder.json"
done
