#!/usr/bin/env python3
"""Trains a small Llama with Lathe and with PyTorch's DistributedDataParallel and fully_shard (FSDP2), both over gloo, on the
same batches and as many ranks, and compares the losses of all steps.

usage: check_ddp.py LATHE [RANKS [STEPS]]     needs torch, transformers and Open MPI

Lathe's losses are those of `LATHE launch -n RANKS`, with each value of parallel.shard. Both start from the same folder, read the same text in its order
(one token per byte), and use AdamW without weight decay at a constant rate. The script ends with status 1 if a loss
differs by more than 1e-5 of itself.
"""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

ENGINES = ("ddp", "fsdp2")
SHARDS = ("none", "optimizer", "gradients", "parameters")
ROWS, T, LR, BOUND = 2, 64, 1e-3, 1e-5  # rows of a micro-batch on one rank, tokens of a row


def make_folder(folder, n_bytes):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=257, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=T,
                         bos_token_id=None, eos_token_id=256, tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(f"{folder}/model")
    words = "the lathe turns a round piece of wood while the tool stands still and takes a thin chip".split()
    choose = random.Random(1)
    text = ""
    while len(text) < n_bytes:
        text += choose.choice(words) + " "
    with open(f"{folder}/text.txt", "w") as f:
        f.write(text[:n_bytes])


def lathe_losses(lathe, folder, n_ranks, steps, shard):
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
dir = "{shard}"
[parallel]
shard = "{shard}"
""")
    command = [lathe, "launch", "-n", str(n_ranks), "run.toml"] if n_ranks > 1 else [lathe, "train", "run.toml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    with open(f"{folder}/{shard}/metrics.jsonl") as f:
        return [json.loads(line)["loss"] for line in f]


def wrap(model, engine):
    """The model as it trains on several ranks, by "ddp" or "fsdp2", which divides it layer by layer."""
    if engine == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def rank_main(rank, n_ranks, folder, steps, engine, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=n_ranks)
    model = LlamaForCausalLM.from_pretrained(f"{folder}/model", torch_dtype=torch.float32)
    trained = wrap(model, engine)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    with open(f"{folder}/text.txt", "rb") as f:
        ids = torch.tensor(list(f.read()))
    losses = []
    for step in range(steps):
        rows = [(step * n_ranks + rank) * ROWS + i for i in range(ROWS)]
        x = torch.stack([ids[r * T:(r + 1) * T] for r in rows])
        y = torch.stack([ids[r * T + 1:(r + 1) * T + 1] for r in rows])
        logits = trained(input_ids=x).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 257), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / n_ranks)
    if rank == 0:
        with open(f"{folder}/{engine}.json", "w") as f:
            json.dump(losses, f)
    dist.destroy_process_group()


def torch_losses(engine, folder, n_ranks, steps):
    with socket.socket() as free:  # a port that nobody uses
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    mp.spawn(rank_main, (n_ranks, folder, steps, engine, port), nprocs=n_ranks)
    with open(f"{folder}/{engine}.json") as f:
        return json.load(f)


def main():
    lathe = os.path.abspath(sys.argv[1])
    n_ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, (steps * n_ranks * ROWS + 1) * T + 1)
        ours = {shard: lathe_losses(lathe, folder, n_ranks, steps, shard) for shard in SHARDS}
        theirs = {engine: torch_losses(engine, folder, n_ranks, steps) for engine in ENGINES}
    failed = 0
    for engine, reference in theirs.items():
        for shard, losses in ours.items():
            worst = max(abs(a - b) / b for a, b in zip(losses, reference, strict=True))
            failed += not worst <= BOUND
            print(f"{'equal' if worst <= BOUND else 'different'}: {steps} steps on {n_ranks} ranks, {engine} and shard {shard}, "
                  f"loss {losses[0]:.4f} to {losses[-1]:.4f}; largest difference {worst:.2g} of the loss, {BOUND:g} allowed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
