#!/usr/bin/env python3
"""Golden products of LLM.int8 (arXiv:2208.07339) by bitsandbytes' Linear8bitLt, in inference.

With outliers (threshold above 0) cases have one row, because bitsandbytes splits off whole columns of
the batch, and Lathe the outliers of each row. Weights and inputs come from the formula of
quant_weights.h (quant.py); inputs are times 2^power and rounded to f16, to which bitsandbytes casts
them. Writes data/int8_products.txt:
    case <seed> <rows of x> <rows> <cols> <power> <threshold>
    the products, one row a line
"""
import pathlib

import bitsandbytes as bnb
import numpy as np
import torch

OUT = pathlib.Path(__file__).parent / "data" / "int8_products.txt"
CASES = [
    (20, 1, 48, 576, 3, 6.0),
    (22, 1, 33, 1091, 4, 6.0),
    (24, 1, 16, 100, -1, 6.0),
    (26, 1, 48, 576, 3, 0.0),
    (28, 3, 20, 320, 2, 0.0),
    (30, 1, 24, 576, 3, 0.5),
]


def weights(seed, rows, cols):
    """As in quant.py."""
    n = rows * cols
    x = np.empty(n, dtype=np.uint64)
    state = seed
    for i in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        x[i] = state
    i = np.arange(n)
    block = i // 64
    w = ((x >> 8).astype(np.float64) / 2**24 - 0.5) * 2.0 ** ((block * 7) % 9 - 6)
    w[i % 997 == 5] *= 64.0
    w[block == 3] = 0.0
    return torch.from_numpy(w.astype(np.float32).reshape(rows, cols))


def main():
    with open(OUT, "w", encoding="utf-8") as out:
        for seed, m, rows, cols, power, threshold in CASES:
            w = weights(seed, rows, cols)
            x = (weights(seed + 1, m, cols) * 2.0**power).half().float()
            layer = bnb.nn.Linear8bitLt(cols, rows, bias=False, has_fp16_weights=False, threshold=threshold)
            # The plugin quantizes f32, Linear8bitLt's own loading f16: the codes are set as they are in files.
            scb = w.abs().amax(1)
            codes = torch.round(w * (127.0 / scb)[:, None]).to(torch.int8)
            layer.weight = bnb.nn.Int8Params(codes, requires_grad=False, has_fp16_weights=False, CB=codes, SCB=scb)
            layer.state.CB, layer.state.SCB = codes, scb
            layer.eval()
            layer.state.is_training = False
            with torch.no_grad():
                y = bnb.matmul(x, codes, state=layer.state)
            split = int((x.abs() >= threshold).sum()) if threshold > 0 else 0
            print(f"seed {seed}: {split} outliers of {x.numel()}")
            out.write(f"case {seed} {m} {rows} {cols} {power} {threshold}\n")
            for row in y:
                out.write(" ".join(f"{v:.9g}" for v in row.tolist()) + "\n")


if __name__ == "__main__":
    main()
