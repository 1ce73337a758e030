#!/usr/bin/env bash
# Trains the same small model with every optimizer: same seed, same data, 500 steps. Prints a Markdown
# table of losses; fails where one does not end 3 nats below its first loss.
#
#   examples/optimizers/run.sh [STEPS]        LATHE: the program (build/bin/lathe)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lathe=${LATHE:-build/bin/lathe} steps=${1:-500}
mkdir -p out/optimizers

# name | settings behind it; rates are round numbers near each one's best, none is tuned to the digit
settings='
adamw|--optimizer.lr 3e-3
adamw_8bit|--optimizer.lr 3e-3
adamw_anyprecision|--optimizer.lr 3e-3
adam_mini|--optimizer.lr 3e-3
schedule_free_adamw|--optimizer.lr 5e-3 --optimizer.warmup_steps 20 --scheduler.name constant
adafactor|--optimizer.lr 1e-2 --optimizer.scale_parameter false
lion|--optimizer.lr 5e-4
signsgd|--optimizer.lr 5e-4
sgd|--optimizer.lr 0.5 --optimizer.momentum 0.9
sophia|--optimizer.lr 1e-3 --optimizer.rho 0.04
muon|--optimizer.lr 2e-2
galore|--optimizer.lr 1e-2 --optimizer.rank 32 --optimizer.update_proj_gap 100
apollo|--optimizer.lr 1e-2 --optimizer.rank 32 --optimizer.update_proj_gap 100
'
cosine='--scheduler.name cosine --scheduler.warmup_steps 20 --scheduler.min_lr_ratio 0.1'
value() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$1" | "$3" -n 1; }
printf '| optimizer | settings | first loss | last training loss | validation loss | state, bytes per parameter | s |\n|---|---|---|---|---|---|---|\n'
while IFS='|' read -r name args; do
    [ -n "$name" ] || continue
    out=out/optimizers/$name schedule=$cosine
    [[ $args != *scheduler.name* ]] || schedule=
    rm -rf "$out"
    begun=$EPOCHREALTIME
    # shellcheck disable=SC2086 # the settings are words
    "$lathe" train examples/optimizers/run.toml --optimizer.name "$name" $args $schedule --train.max_steps "$steps" \
        --train.eval_every "$steps" --checkpoint.dir "$out" >"$out.log" 2>&1 || { cat "$out.log" >&2; exit 1; }
    seconds=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.0f", b - a}')
    state=$(find "$out" -name optimizer.safetensors -printf '%s\n' | tail -n 1)
    weights=$(find "$out"/step-* -maxdepth 1 -name model.safetensors -printf '%s\n' | tail -n 1)
    printf '| `%s` | %s | %.3f | %.3f | %.3f | %.2f | %s |\n' "$name" "$(sed 's/--optimizer\.//g; s/--//g' <<<"$args")" \
        "$(value "$out/metrics.jsonl" loss head)" "$(value "$out/metrics.jsonl" loss tail)" \
        "$(value "$out/metrics.jsonl" eval_loss tail)" "$(awk -v a="$state" -v b="$weights" 'BEGIN {print 4 * a / b}')" "$seconds"
    awk -v a="$(value "$out/metrics.jsonl" loss head)" -v b="$(value "$out/metrics.jsonl" eval_loss tail)" \
        'BEGIN {exit !(b < a - 3)}' || { echo "$name has not learnt" >&2; exit 1; }
done <<<"$settings"
