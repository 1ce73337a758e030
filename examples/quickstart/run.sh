#!/usr/bin/env bash
# The quick start: trains the model of run.toml on this checkout, prints a sample, and leaves a Hugging
# Face folder in out/quickstart/model. `./dev quickstart` builds first and then runs this.
#
# It takes about three minutes on any machine: three short steps of run.toml's model are timed, and where 400 of its
# steps would take longer, smaller models of the same family are timed until one fits; at last fewer steps are taken.
# SECONDS_TO_TRAIN (150) is what the steps may take. Arguments go to lathe train.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lathe=build/bin/lathe
run=examples/quickstart/run.toml

# Width, width inside the MLP, layers, heads.
sizes=("320 864 7 5" "256 688 5 4" "192 512 4 3" "128 344 4 2" "64 176 2 1")
STEPS=400 LEAST_STEPS=100 STEP_TOKENS=$((16 * 256))

# Tokens/s of the last of three steps of 4 rows, as the run's own figures have it.
measure() {
    rm -rf out/quickstart-timing
    "$lathe" train "$run" --train.max_steps 3 --train.micro_batch_size 4 --train.eval_every 0 --scheduler.warmup_steps 1 \
        --log.progress off --checkpoint.dir out/quickstart-timing "$@" >out/quickstart-timing.log 2>&1 ||
        { cat out/quickstart-timing.log >&2; exit 1; }
    sed -n '$s/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' out/quickstart-timing/metrics.jsonl
    rm -rf out/quickstart-timing out/quickstart-timing.log
}

rm -rf out/quickstart
mkdir -p out
most=${SECONDS_TO_TRAIN:-150} steps=$STEPS model=()
printf '\n== timing short steps, to choose a model that this machine trains in three minutes\n'
for size in "${sizes[@]}"; do
    read -r width inside layers heads <<<"$size"
    if [ "$size" != "${sizes[0]}" ]; then
        model=(--model.hidden_size "$width" --model.intermediate_size "$inside" --model.num_hidden_layers "$layers"
            --model.num_attention_heads "$heads" --model.num_key_value_heads "$heads")
    fi
    rate=$(measure "${model[@]}" "$@")
    seconds=$(awk -v r="$rate" -v n="$((STEPS * STEP_TOKENS))" 'BEGIN {printf "%.0f", n / r}')
    printf '%s layers of width %s: %.0f tokens/s, %s steps would take %s s\n' "$layers" "$width" "$rate" "$STEPS" "$seconds"
    [ "$seconds" -le "$most" ] && break
done
if [ "$seconds" -gt "$most" ]; then
    steps=$((STEPS * most / seconds))
    [ "$steps" -ge "$LEAST_STEPS" ] || steps=$LEAST_STEPS
    model+=(--train.max_steps "$steps")
fi
set -- "${model[@]}" "$@"

printf '\n== the plan, before anything runs: lathe plan examples/quickstart/run.toml\n'
"$lathe" plan "$run" "$@" | head -n 8
printf '\n== training: lathe train %s\n' "$run $*"
"$lathe" train "$run" "$@"
latest=out/quickstart/$(cat out/quickstart/latest)
ln -sfn "$(basename "$latest")" out/quickstart/model
printf '\n== a sample: lathe generate out/quickstart --prompt "static lathe_status "\n'
"$lathe" generate out/quickstart --prompt 'static lathe_status ' --max-new-tokens 96 --temperature 0.7 --top-k 50 --seed 7
printf '\n== done. A Hugging Face folder: out/quickstart/model\n'
ls -1 out/quickstart/model/
printf '\nAnother optimizer is another word:\n'
printf '  build/bin/lathe train examples/quickstart/run.toml --optimizer.name muon --optimizer.lr 0.02 --checkpoint.dir out/muon\n'
