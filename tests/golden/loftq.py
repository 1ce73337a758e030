#!/usr/bin/env python3
"""LoftQ by its definition, with bitsandbytes' NF4: tests/core/run/merge/test_loftq.c.

PEFT's loftq_init needs bitsandbytes on CUDA. The steps here are its steps (arXiv:2310.08659, algorithm 1), with its
own _low_rank_decomposition, and bitsandbytes' reference backend on the CPU for NF4 with plain scales in blocks of 64:

    repeat T times:  Q = dequantize(quantize(W - L R));  L R = best approximation of rank 4 of W - Q

Writes data/loftq.txt, one line per linear weight of models/llama_untied and T in 1, 2, 5:
    NAME T ERROR PLAIN      ERROR = |W - (Q + L R)|, PLAIN = |W - quantized W|, Frobenius norms in double

Made with torch 2.15.0, bitsandbytes 0.50.2, peft 0.21.2: python tests/golden/loftq.py
"""
import pathlib

import quant  # noqa: F401  first: keeps bitsandbytes' own CPU library from loading, see there
import bitsandbytes.functional as bnb
import torch
from peft.utils.loftq_utils import _low_rank_decomposition
from safetensors.torch import load_file

DATA = pathlib.Path(__file__).parent / "data"
RANK, STEPS = 4, (1, 2, 5)


def nf4(w):
    codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    return bnb.dequantize_4bit(codes, state)


def norm(w):
    return w.double().norm().item()


def main():
    lines = ["# bitsandbytes' NF4 and PEFT's decomposition; see tests/golden/loftq.py\n"]
    for name, w in sorted(load_file(DATA / "models/llama_untied/model.safetensors").items()):
        if not name.endswith("_proj.weight"):
            continue
        w = w.float()
        for steps in STEPS:
            product = torch.zeros_like(w)
            for _ in range(steps):
                q = nf4(w - product)
                out = _low_rank_decomposition(w - q, reduced_rank=RANK)
                product = out["L"] @ out["R"]
            lines.append(f"{name} {steps} {norm(w - (q + product)):.9g} {norm(w - nf4(w)):.9g}\n")
    (DATA / "loftq.txt").write_text("".join(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
