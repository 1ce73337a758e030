#!/usr/bin/env bash
# Loss over steps of DiLoCo on four islands of one rank, and of one process with the same batches, which stands for DDP on
# four ranks: they differ by the order of sums (tests/ranks/test_train_ranks.c). The same rows in each step, so the same
# tokens. Both go on from one checkpoint of the process (FROM 0: both from the beginning), as in arXiv:2311.08105. Prints the
# losses on the validation part, and each last one over that of DDP; BUILD/diloco_curves.jsonl gets them for docs/images/curves.py.
#
#   bench/diloco_curve.sh TEXT.txt [STEPS [FROM [INNER_STEPS]]]
#
# BUILD: the build folder (build). LR: learning rate (5e-3); OUTER_LR and OUTER_MOMENTUM: of the outer step (0.7, 0.5);
# DTYPES: of the change (fp32 int8).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

text=$(realpath "$1") steps=${2:-800} from=${3:-400} inner=${4:-20} out=$(realpath "${BUILD:-build}")/diloco_curves.jsonl dtypes=${DTYPES:-fp32 int8}
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
lr = ${LR:-5e-3}
weight_decay = 0.1
[scheduler]
name = "cosine"
warmup_steps = 50
[train]
precision = "fp32"
micro_batch_size = 16
seed = 7
threads = 1
eval_every = $((steps / 20))
eval_batches = 16
max_steps = $steps
[log]
progress = "off"
TOML
alone() { "$lathe" train run.toml --checkpoint.dir ddp --train.micro_batch_size 64 "$@" >log 2>&1 || { cat log >&2; exit 1; }; }
[ "$from" -eq 0 ] || alone --train.stop_after "$from"
for dtype in $dtypes; do
    [ "$from" -eq 0 ] || cp -r ddp "$dtype"
    "$lathe" launch -n 4 run.toml --checkpoint.dir "$dtype" --parallel.diloco_islands 4 \
        --parallel.diloco_inner_steps "$inner" --parallel.diloco_outer_lr "${OUTER_LR:-0.7}" \
        --parallel.diloco_outer_momentum "${OUTER_MOMENTUM:-0.5}" \
        --parallel.diloco_pseudo_gradient_dtype "$dtype" >log 2>&1 || { cat log >&2; exit 1; }
done
alone
python3 - "$inner" "$from" "$out" $dtypes <<'PY'
import json
import sys

inner, begin, out, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]

def losses(name):
    rows = [json.loads(line) for line in open(f"{name}/metrics.jsonl")]
    return {r["step"]: r["eval_loss"] for r in rows if r.get("eval_loss")}, sum(r.get("diloco_bytes_sent", 0) for r in rows)

ddp, _ = losses("ddp")
runs = {name: losses(name) for name in names}
shown = [s for s in ddp if s >= begin and (s % inner == 0 or s == max(ddp))]  # ends of rounds
print("| step | " + " | ".join(str(s) for s in shown) + " | over DDP | MB sent to other islands |")
print("|---" * (len(shown) + 3) + "|")
print("| DDP | " + " | ".join(f"{ddp[s]:.4f}" for s in shown) + " | 1 | |")
for name, (own, sent) in runs.items():
    cells = " | ".join(f"{own[s]:.4f}" for s in shown)
    print(f"| DiLoCo, H = {inner}, {name} | {cells} | {own[max(ddp)] / ddp[max(ddp)]:.4f} | {sent / 1e6:.1f} |")
with open(out, "w") as f:
    for s in ddp:
        row = {"step": s, "eval_loss_ddp": ddp[s]}
        row.update({f"eval_loss_diloco_{name}": own[s] for name, (own, _) in runs.items() if s >= begin and s in own})
        print(json.dumps(row), file=f)
PY
