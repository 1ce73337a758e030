#!/usr/bin/env bash
# The forecast of `lathe plan --ranks` against trainings over collective/throttle: 2 and 4 ranks of this machine, three
# links. Each round trains without the throttle, which measures the time of computing, plans with this time, and
# trains with the throttle; the figure is the forecast's time of a step over the measured one. Then, on 2 ranks and a link
# on which the exchange takes half of a backward, the time that a step of a larger model waits for the exchange: with
# sums during the backward, and as a share of the exchange. Prints tables, and writes them to
# bench/results/<date>-<machine>-throttled.md.
#
#   bench/throttled.sh [name of the machine]
#
# LATHE_BENCH_REALTIME: 1: trainings run at real-time priority (chrt), for a machine on which other programs run.
# BUILD: the build folder (build); ROUNDS: of which the median is taken (5); STEPS: steps of a training (16), of which the
# first three are left out. The exchange in shared memory, which the link hides, is a part of the time "of computing": so
# on a busy machine the forecast is a little too high.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=$(realpath "${BUILD:-build}") rounds=${ROUNDS:-5} steps=${STEPS:-16}
lathe=$build/bin/lathe
priority=() how="at usual priority"
[ -z "${LATHE_BENCH_REALTIME:-}" ] || priority=(chrt -r 1) how="at real-time priority"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
machine=${1:-$(tr -cs 'a-zA-Z0-9\n' '-' <<<"$cpu" | tr 'A-Z' 'a-z')-$(nproc)}
result=bench/results/$(date +%Y-%m-%d)-$machine-throttled.md
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

median() { sort -g | awk '{x[NR] = $1} END {if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }

for i in $(seq 3000); do echo "Piece $i of the lathe is turned $((i * i % 97)) times."; done >"$work/text.txt"
cat >"$work/run.toml" <<TOML
[model]
model_type = "llama"
hidden_size = 128
num_hidden_layers = 4
num_attention_heads = 4
intermediate_size = 384
vocab_size = 257
max_position_embeddings = 256
[data]
datasets = [{ path = "text.txt", type = "text" }]
seq_len = 256
cache_dir = "cache"
[train]
precision = "fp32"
micro_batch_size = 2
threads = 1
max_steps = $steps
[parallel]
bucket_mb = 1
[log]
progress = "off"
TOML

# steps_of N WORDS...: trains on N ranks, prints the median of step_seconds.
steps_of() {
    local n=$1
    shift
    rm -rf "$work/out"
    (cd "$work" && "${priority[@]}" "$lathe" launch -n "$n" run.toml --checkpoint.dir out "$@" >out.log 2>&1) || { cat "$work/out.log" >&2; exit 1; }
    sed -n 's/.*"step_seconds": \([^,}]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n +4 | median
}

# forecast N LINK SECONDS: the time of a step of ddp, as Lathe trains it, and the time of its exchange.
forecast() {
    "$lathe" plan "$work/run.toml" --ranks "$1" --link "$2" --step-time "$3s" --json |
        sed -n 's/.*"name": "ddp".*"exchange_seconds": \([^,]*\), .*"overlapped_seconds": \([^,]*\),.*/\2 \1/p'
}

# figure KEY: the median of a figure of the last training.
figure() { sed -n 's/.*"'"$1"'": \([^,}]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n +4 | median; }

{
    echo "| ranks | link | computing, s | exchange by the forecast, s | forecast, s | measured, s | forecast / measured | asked | |"
    echo "|---|---|---|---|---|---|---|---|---|"
} | tee "$work/table"
steps_of 2 >"$work/warm" # prepares the data
for n in 2 4; do
    for link in 1Gbit,0.1ms 200Mbit,1ms 50Mbit,5ms; do
        : >"$work/rows"
        for _ in $(seq "$rounds"); do
            computing=$(steps_of "$n")
            read -r predicted exchange <<<"$(forecast "$n" "$link" "$(awk -v s="$computing" 'BEGIN {printf "%.9f", s}')")"
            measured=$(steps_of "$n" --collective.name throttle --collective.bandwidth "${link%,*}" --collective.latency "${link#*,}")
            echo "$(awk -v a="$predicted" -v b="$measured" 'BEGIN {print a / b}') $computing $exchange $predicted $measured" >>"$work/rows"
        done
        ratio=$(cut -d' ' -f1 "$work/rows" | median)
        range=$(cut -d' ' -f1 "$work/rows" | sort -g | awk 'NR == 1 {a = $1} {b = $1} END {printf "%.2f-%.2f", a, b}')
        column() { cut -d' ' -f"$1" "$work/rows" | median | awk '{printf "%.4f", $1}'; }
        met=$(awk -v r="$ratio" 'BEGIN {print (r >= 0.9 && r <= 1.1) ? "met" : "missed"}')
        printf '| %s | %s | %s | %s | %s | %s | %.3f (%s) | 0.9-1.1 | %s |\n' "$n" "$link" "$(column 2)" "$(column 3)" \
            "$(column 4)" "$(column 5)" "$ratio" "$range" "$met" | tee -a "$work/table"
    done
done

# One round of the second table: the exchange takes half of the backward that was measured without the throttle.
larger=(--model.hidden_size 256 --model.num_hidden_layers 8 --model.intermediate_size 768)
{
    echo
    echo "| shard | a step without the link, s | exchange of gradients, s | a step, s | exposed, s | exposed / step | asked | |"
    echo "|---|---|---|---|---|---|---|---|"
} | tee -a "$work/table"
for shard in none optimizer; do
    : >"$work/rows"
    for _ in $(seq "$rounds"); do
        free=$(steps_of 2 "${larger[@]}" --parallel.shard "$shard")
        bits=$(awk -v b="$(figure ranks_bytes_sent)" -v s="$(figure backward_seconds)" 'BEGIN {printf "%.0f", 8 * b / (0.5 * s) / 1e6}')
        exchange=$(awk -v b="$(figure ranks_bytes_sent)" -v r="$bits" 'BEGIN {print 8 * b / (r * 1e6)}')
        step=$(steps_of 2 "${larger[@]}" --parallel.shard "$shard" --collective.name throttle --collective.bandwidth "${bits}Mbit" --collective.latency 0.1ms)
        echo "$free $exchange $step $(figure ranks_exposed_seconds)" >>"$work/rows"
    done
    column() { cut -d' ' -f"$1" "$work/rows" | median | awk '{printf "%.4f", $1}'; }
    share=$(awk '{print $4 / $3}' "$work/rows" | median)
    met=$(awk -v r="$share" 'BEGIN {print (r <= 0.05) ? "met" : "missed"}')
    printf '| %s | %s | %s | %s | %s | %.3f | 0.05 | %s |\n' "$shard" "$(column 1)" "$(column 2)" "$(column 3)" "$(column 4)" "$share" "$met" |
        tee -a "$work/table"
done

{
    echo "# Forecast of exchanges, $(date +%Y-%m-%d)"
    echo
    echo "Machine: $cpu, $(nproc) CPUs; Linux $(uname -r); load $(cut -d' ' -f1 /proc/loadavg) at the end."
    echo "Lathe $("$lathe" --version | head -1 | grep -o '[0-9][0-9.]*' | head -1) at $(git rev-parse --short HEAD); $(mpirun --version | head -1)."
    echo "$(sed -n 's/^  \(.*\) tokens per step.*/\1 tokens/p' <("$lathe" plan "$work/run.toml")) per step and rank; medians of $rounds rounds of $steps steps, $how. Made by bench/throttled.sh."
    echo
    cat "$work/table"
} >"$result"
echo "$result"
