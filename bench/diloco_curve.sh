#!/usr/bin/env bash
# Loss over steps of DiLoCo on four islands of one rank, and of one process with the same batches, which stands for DDP on
# four ranks: they differ by the order of sums (tests/ranks/test_train_ranks.c). The same rows in each step, so the same
# tokens. Prints the losses on the validation part, and each last one over that of DDP.
#
#   bench/diloco_curve.sh TEXT.txt [STEPS [INNER_STEPS]]
#
# BUILD: the build folder (build). LR: learning rate of DDP (3e-3); INNER_LR: of the islands (3e-3); OUTER_LR and
# OUTER_MOMENTUM: of the outer step (0.7, 0.9); DTYPES: of the change (fp32).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

text=$(realpath "$1") steps=${2:-800} inner=${3:-20}
lathe=$(realpath "${BUILD:-build}")/bin/lathe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >run.toml <<TOML
[model]
model_type = "llama"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 192
vocab_size = 257
max_position_embeddings = 64
tie_word_embeddings = true
[data]
datasets = [{ path = "$text", type = "text" }]
validation_split = 0.05
seq_len = 64
cache_dir = "cache"
[optimizer]
name = "adamw"
lr = ${LR:-3e-3}
weight_decay = 0.1
[scheduler]
name = "cosine"
warmup_steps = 50
[train]
precision = "fp32"
micro_batch_size = 16
seed = 7
threads = 1
eval_every = $((steps / 8))
eval_batches = 16
max_steps = $steps
[log]
progress = "off"
TOML
"$lathe" train run.toml --checkpoint.dir ddp --train.micro_batch_size 64 >log 2>&1 || { cat log >&2; exit 1; }
for dtype in ${DTYPES:-fp32}; do
    "$lathe" launch -n 4 run.toml --checkpoint.dir "$dtype" --optimizer.lr "${INNER_LR:-3e-3}" \
        --parallel.diloco_islands 4 --parallel.diloco_inner_steps "$inner" \
        --parallel.diloco_outer_lr "${OUTER_LR:-0.7}" --parallel.diloco_outer_momentum "${OUTER_MOMENTUM:-0.9}" \
        --parallel.diloco_pseudo_gradient_dtype "$dtype" >log 2>&1 || { cat log >&2; exit 1; }
done
python3 - "$inner" ${DTYPES:-fp32} <<'PY'
import json
import sys

def losses(name):
    rows = [json.loads(line) for line in open(f"{name}/metrics.jsonl")]
    return {r["step"]: r["eval_loss"] for r in rows if r.get("eval_loss")}, sum(r.get("diloco_bytes_sent", 0) for r in rows)

ddp, _ = losses("ddp")
print("| step | " + " | ".join(str(s) for s in ddp) + " | over DDP | MB sent to other islands |")
print("|---" * (len(ddp) + 3) + "|")
for name in ["ddp"] + sys.argv[2:]:
    own, sent = losses(name)
    title = "DDP" if name == "ddp" else f"DiLoCo, H = {sys.argv[1]}, {name}"
    cells = " | ".join(f"{own[s]:.4f}" for s in ddp)
    print(f"| {title} | {cells} | {own[max(ddp)] / ddp[max(ddp)]:.4f} | {sent / 1e6:.1f} |")
PY
