"""Two ranks of one thread in Lathe and in PyTorch (gloo), and one rank of two threads in Lathe: GPT-2 124M.

Usage: torch_ranks.py LATHE [STEPS [ROWS [TOKENS]]]
LATHE: the program. STEPS: of each training; the first is left out. ROWS: of a step on all ranks together. TOKENS: of a row.

Every training has random weights of the same shape, random tokens, fp32, AdamW, and no dropout. PyTorch's sides are
DistributedDataParallel, and fully_shard (FSDP2) of each block and of the rest. Prints one "key value" per line, tokens per second of
all ranks by the median step: one_rank, ddp, zero3 (Lathe), torch_ddp, torch_fsdp2. Needs torch, transformers and Open MPI.
"""
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

VOCAB, WIDTH, LAYERS, HEADS = 50257, 768, 12, 12

RUN = """[model]
model_type = "gpt2"
vocab_size = {vocab}
hidden_size = {width}
num_hidden_layers = {layers}
num_attention_heads = {heads}
max_position_embeddings = 1024
[tokenizer]
path = "bytes"
[data]
datasets = [{{ path = "text.txt", type = "text" }}]
seq_len = {tokens}
cache_dir = "cache"
[train]
precision = "fp32"
max_grad_norm = 0.0
max_steps = {steps}
[optimizer]
name = "adamw"
[device]
name = "cpu"
[log]
progress = "off"
"""


def lathe_rate(lathe, folder, ranks, rows, tokens, shard):
    """Tokens per second by the median of step_seconds."""
    out = f"{folder}/out-{ranks}-{shard}"
    words = ["run.toml", "--checkpoint.dir", out, "--train.micro_batch_size", str(rows // ranks), "--train.threads", str(2 // ranks),
             "--parallel.shard", shard]
    head = [lathe, "launch", "-n", str(ranks)] if ranks > 1 else [lathe, "train"]
    done = subprocess.run(head + words, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    seconds = [json.loads(line)["step_seconds"] for line in open(f"{out}/metrics.jsonl")][1:]
    return rows * tokens / statistics.median(seconds)


def rank_main(rank, ranks, port, engine, steps, rows, tokens, folder):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import GPT2Config, GPT2LMHeadModel

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0.0,
                                       embd_pdrop=0.0, attn_pdrop=0.0))
    model.config.use_cache = False
    if engine == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randint(0, VOCAB, (rows // ranks, tokens + 1))
    seconds = []
    for _ in range(steps):
        dist.barrier()
        start = time.perf_counter()
        logits = model(input_ids=x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        with open(f"{folder}/{engine}.json", "w") as f:
            json.dump(rows * tokens / statistics.median(seconds[1:]), f)
    dist.destroy_process_group()


def torch_rate(engine, *args):
    import torch.multiprocessing as mp

    folder = args[-1]
    with socket.socket() as free:  # a port that nobody uses
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    mp.spawn(rank_main, (2, port, engine, *args), nprocs=2)
    return json.load(open(f"{folder}/{engine}.json"))


def main():
    lathe = os.path.abspath(sys.argv[1])
    steps, rows, tokens = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 6), (3, 4), (4, 512)))
    with tempfile.TemporaryDirectory() as folder:
        choose = random.Random(0)
        with open(f"{folder}/text.txt", "w") as f:
            f.write("".join(choose.choice("abcdefghij klm\n") for _ in range((steps + 1) * rows * (tokens + 1))))
        with open(f"{folder}/run.toml", "w") as f:
            f.write(RUN.format(vocab=VOCAB, width=WIDTH, layers=LAYERS, heads=HEADS, tokens=tokens, steps=steps))
        print("one_rank", lathe_rate(lathe, folder, 1, rows, tokens, "none"))
        print("ddp", lathe_rate(lathe, folder, 2, rows, tokens, "none"))
        print("torch_ddp", torch_rate("ddp", steps, rows, tokens, folder))
        print("zero3", lathe_rate(lathe, folder, 2, rows, tokens, "parameters"))
        print("torch_fsdp2", torch_rate("fsdp2", steps, rows, tokens, folder))


if __name__ == "__main__":
    main()
