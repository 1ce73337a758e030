#!/usr/bin/env python3
"""Trains a small Llama with Lathe's DiLoCo and with the same algorithm in PyTorch, on the same batches, and compares the
losses of the first island in all steps, and the weights at the end.

usage: check_diloco.py LATHE [STEPS [INNER_STEPS]]     needs torch, transformers, safetensors and Open MPI

PyTorch's side is arXiv:2311.08105, algorithm 1, in one process: a model and an AdamW for each island, whose losses are
means over the island's rows, and one torch.optim.SGD(nesterov=True) over the weights of the last round, whose gradient is
the mean of the changes. bf16 rounds each change, and their mean; int8 and int4 are a NumPy version of the codec of
core/parallel/islands/delta_codec.h with its error feedback. The script ends with status 1 if a loss differs by more than
its bound, a share of itself. With int8 and int4 a number half way between two codes goes up or down by its last bits, which
differ between processors and libraries; from then on the runs differ by a code here and there. So these cases take two rounds: all losses within
the bound, and after the first round at most one element in 10,000 differs by more than 2e-6, what fp32 differs by. Cases with int8 and int4 have islands of one rank, whose blocks are counted over all
weights.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from check_ddp import LR, ROWS, T, make_folder
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

OUTER_LR, MOMENTUM = 0.7, 0.9
# ranks, islands, shard, ranks that divide, dtype, bound
CASES = ((4, 4, "none", 0, "fp32", 1e-5), (4, 2, "none", 0, "fp32", 1e-5), (4, 2, "optimizer", 0, "fp32", 1e-5),
         (4, 2, "gradients", 0, "bf16", 1e-5), (8, 2, "parameters", 2, "fp32", 1e-5), (4, 4, "none", 0, "fp16", 1e-5),
         (3, 3, "none", 0, "int8", 1e-5), (4, 4, "none", 0, "int4", 1e-5))


def lathe_run(lathe, folder, case, steps, inner):
    n_ranks, islands, shard, shard_ranks, dtype, _ = case
    with open(f"{folder}/run.toml", "w") as f:
        f.write(f"""[model]
path = "model"
[tokenizer]
path = "bytes"
[data]
datasets = [{{ path = "text.txt", type = "text" }}]
seq_len = {T}
shuffle = false
[optimizer]
name = "adamw"
lr = {LR}
weight_decay = 0.0
[scheduler]
name = "constant"
[train]
precision = "fp32"
micro_batch_size = {ROWS}
max_steps = {steps}
max_grad_norm = 0.0
threads = 1
[checkpoint]
dir = "out"
[parallel]
shard = "{shard}"
shard_ranks = {shard_ranks}
diloco_islands = {islands}
diloco_inner_steps = {inner}
diloco_outer_lr = {OUTER_LR}
diloco_outer_momentum = {MOMENTUM}
diloco_pseudo_gradient_dtype = "{dtype}"
""")
    subprocess.run(["rm", "-rf", f"{folder}/out"], check=True)
    done = subprocess.run([lathe, "launch", "-n", str(n_ranks), "run.toml"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    with open(f"{folder}/out/metrics.jsonl") as f:
        losses = [json.loads(line)["loss"] for line in f]
    return losses, load_file(f"{folder}/out/step-{steps:08d}/model.safetensors")


class Codec:
    """What islands send of a change, for an array of whole pieces: encode and decode in one."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, x):
        if self.dtype == "fp32":
            return x
        if self.dtype in ("bf16", "fp16"):
            kind = torch.bfloat16 if self.dtype == "bf16" else torch.float16
            return torch.from_numpy(x).to(kind).to(torch.float32).numpy()
        block, most = (256, 127) if self.dtype == "int8" else (64, 7)
        padded = np.zeros((len(x) + block - 1) // block * block, np.float32)
        padded[:len(x)] = x
        rows = padded.reshape(-1, block)
        scale = (np.abs(rows).max(1, keepdims=True) / np.float32(most)).astype(np.float32)
        codes = np.clip(np.rint(rows / np.where(scale > 0, scale, 1)), -most, most).astype(np.float32)
        return (codes * scale).reshape(-1)[:len(x)]


def torch_run(folder, case, steps, inner):
    n_ranks, islands, _, _, dtype, _ = case
    rows_of = ROWS * n_ranks // islands
    models = [LlamaForCausalLM.from_pretrained(f"{folder}/model", torch_dtype=torch.float32) for _ in range(islands)]
    inners = [torch.optim.AdamW(m.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0) for m in models]
    names = [n for n, _ in models[0].named_parameters()]  # the order of Lathe's table, which blocks are counted in
    start = torch.nn.Parameter(torch.cat([dict(models[0].named_parameters())[n].detach().flatten() for n in names]))
    outer = torch.optim.SGD([start], lr=OUTER_LR, momentum=MOMENTUM, nesterov=True)
    codec, feedback = Codec(dtype), dtype.startswith("int")
    errors = [np.zeros(start.numel(), np.float32) for _ in range(islands)]
    blocks = start.numel() // 256  # island k averages the blocks from k / islands of them on
    ends = [k * blocks // islands * 256 for k in range(islands)] + [start.numel()]
    with open(f"{folder}/text.txt", "rb") as f:
        ids = torch.tensor(list(f.read()))
    losses = []
    for step in range(steps):
        for k, (model, optimizer) in enumerate(zip(models, inners, strict=True)):
            first = step * n_ranks * ROWS + k * rows_of
            x = torch.stack([ids[r * T:(r + 1) * T] for r in range(first, first + rows_of)])
            y = torch.stack([ids[r * T + 1:(r + 1) * T + 1] for r in range(first, first + rows_of)])
            logits = model(input_ids=x).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 257), y.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if k == 0:
                losses.append(loss.item())
        if (step + 1) % inner != 0 and step + 1 != steps:
            continue
        with torch.no_grad():
            sent = []
            for k, model in enumerate(models):
                now = torch.cat([dict(model.named_parameters())[n].flatten() for n in names])
                change = (start - now).numpy() + errors[k]
                sent.append(codec(change))
                if feedback:
                    errors[k] = change - sent[-1]
            total = np.zeros_like(sent[0])
            for s in sent:
                total = total + s
            mean = total / np.float32(islands)
            coded = codec(mean)
            for k in range(islands if feedback else 0):
                own = slice(ends[k], ends[k + 1])
                errors[k][own] += np.float32(islands) * (mean - coded)[own]
            start.grad = torch.from_numpy(coded.copy())
            outer.step()
            at = 0
            for n in names:
                count = dict(models[0].named_parameters())[n].numel()
                for model in models:
                    p = dict(model.named_parameters())[n]
                    p.copy_(start[at:at + count].view_as(p))
                at += count
    weights, at = {}, 0
    for n in names:
        p = dict(models[0].named_parameters())[n]
        weights[n] = start[at:at + p.numel()].detach().view_as(p)
        at += p.numel()
    return losses, weights


def n_different(lathe, folder, case, inner):
    """Elements that differ by more than 2e-6 after one round."""
    _, weights = lathe_run(lathe, folder, case, inner, inner)
    _, start = torch_run(folder, case, inner, inner)
    return sum(int(((weights[k] - start[k]).abs() > 2e-6).sum()) for k in start)


def main():
    lathe = os.path.abspath(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    inner = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, (steps * max(c[0] for c in CASES) * ROWS + 1) * T + 1)
        for case in CASES:
            n_other = 0
            if case[4].startswith("int"):
                n_other = n_different(lathe, folder, case, inner)
            n = 2 * inner if case[4].startswith("int") else steps
            ours, weights = lathe_run(lathe, folder, case, n, inner)
            theirs, start = torch_run(folder, case, n, inner)
            worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
            far = max((weights[k] - start[k]).abs().max().item() for k in start)
            is_good = worst <= case[5] and n_other <= 1e-4 * sum(w.numel() for w in start.values())
            failed += not is_good
            print(f"{'equal' if is_good else 'different'}: {n} steps, rounds of {inner}, {case[0]} ranks in {case[1]} islands, "
                  f"shard {case[2]} {case[3]}, {case[4]}: loss {ours[0]:.4f} to {ours[-1]:.4f}; largest difference "
                  f"{worst:.2g} of the loss, {case[5]:g} allowed; weights differ by {far:.2g} at most" + (f", {n_other} of them after a round" if n_other else ""), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
