"""Milliseconds of a fused CPU optimizer step of PyTorch, for bench/run.

    python bench/torch_optimizer.py adamw|sgd MILLION-ELEMENTS THREADS
"""

import statistics
import sys
import time

import torch

name, millions, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
N_TENSORS, REPEATS = 40, 15
params = [torch.nn.Parameter(torch.rand(millions * 1000000 // N_TENSORS)) for _ in range(N_TENSORS)]
for p in params:
    p.grad = torch.rand_like(p)
if name == "adamw":
    opt = torch.optim.AdamW(params, lr=1e-3, fused=True)
else:
    opt = torch.optim.SGD(params, lr=1e-3, momentum=0.9, fused=True)
times = []
for r in range(REPEATS + 1):
    begin = time.perf_counter()
    opt.step()
    if r:
        times.append(1e3 * (time.perf_counter() - begin))
print("torch", torch.__version__)
print("ms", round(statistics.median(times), 2))
