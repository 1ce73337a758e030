#!/usr/bin/env python3
"""What GPTQ and AWQ make of a small layer: data/calibrated.bin, for plugins/quant/gptq/test_gptq.c.

    /path/to/python tests/golden/calibrated.py      # needs torch

The methods are written down here from their papers, in torch and float64 where a paper does not say the dtype:
GPTQ from arXiv:2210.17323, algorithm 1 (with its blocks of 128, Cholesky factor of the inverse and lazy updates) and
act-order as its authors' code has it; AWQ's scales from arXiv:2306.00978, section 3.2 (s = mean |x|^a, 20 steps of a).
The packages AutoAWQ and GPTQModel themselves are not needed, and were not compared.

The file: little-endian int32 n_outputs, n_inputs, group; f32 W [O,I]; f32 H [I,I] (mean of x x^T); f32 mean |x| [I];
f64 errors of the mean squared output, tr(D H D^T) / O: nearest codes, GPTQ, GPTQ with act-order, AWQ's scales without
clipping; then int32 codes of GPTQ [O,I], and the scales of AWQ f32 [I].
"""
import pathlib
import struct

import torch

O, I, GROUP, N, BITS, DAMPING = 48, 128, 32, 1024, 4, 0.05
TOP = 2**BITS - 1


def parameters(w):
    """Scale (f16 numbers) and zero point of each row of w [O, group], asymmetric."""
    low, high = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
    scale = ((high - low) / TOP).half().float()
    return scale, (-low / scale).round().clamp(0, TOP)


def nearest(w):
    """W rounded to the nearest codes, and the codes."""
    out, codes = torch.empty_like(w), torch.empty_like(w)
    for g in range(0, w.shape[1], GROUP):
        scale, zero = parameters(w[:, g:g + GROUP])
        codes[:, g:g + GROUP] = ((w[:, g:g + GROUP] / scale[:, None]).round() + zero[:, None]).clamp(0, TOP)
        out[:, g:g + GROUP] = (codes[:, g:g + GROUP] - zero[:, None]) * scale[:, None]
    return out, codes.int()


def order_of(diagonal, act_order):
    """Inputs in the order in which they are quantized; "group": groups stay together (act_group_aware of GPTQModel)."""
    if act_order == "none":
        return torch.arange(I)
    if act_order == "full":
        return torch.argsort(diagonal, descending=True, stable=True)
    groups = diagonal.reshape(-1, GROUP)
    inside = torch.argsort(groups, descending=True, stable=True)
    first = torch.argsort(groups.amax(1), descending=True, stable=True)
    return (inside + torch.arange(0, I, GROUP)[:, None])[first].reshape(-1)


def gptq(w, h, act_order, block=128):
    """Algorithm 1 of the paper."""
    w, h = w.clone().float(), h.clone().double()
    h += torch.eye(I) * DAMPING * h.diagonal().mean()
    order = order_of(h.diagonal(), act_order)
    w, h = w[:, order], h[order][:, order]
    upper = torch.linalg.cholesky(torch.linalg.inv(h), upper=True).float()
    out, codes = torch.empty_like(w), torch.empty_like(w)
    for first in range(0, I, block):
        last = min(first + block, I)
        errors = torch.zeros(w.shape[0], last - first)
        for i in range(first, last):
            if i % GROUP == 0:
                scale, zero = parameters(w[:, i:i + GROUP])
            codes[:, i] = ((w[:, i] / scale).round() + zero).clamp(0, TOP)
            out[:, i] = (codes[:, i] - zero) * scale
            error = (w[:, i] - out[:, i]) / upper[i, i]
            w[:, i + 1:last] -= error[:, None] * upper[i, i + 1:last][None]
            errors[:, i - first] = error
        w[:, last:] -= errors @ upper[first:last, last:]
    back = torch.argsort(order)
    return out[:, back], codes[:, back].int()


def awq(w, h, magnitude):
    """The scales of least error among 20 exponents."""
    best = (float("inf"), None)
    for step in range(20):
        s = magnitude.pow(step / 20).clamp(min=1e-4)
        s = s / (s.max() * s.min()).sqrt()
        e = error(nearest(w * s)[0] / s - w, h)
        best = min(best, (e, s), key=lambda x: x[0])
    return best


def error(d, h):
    return float(((d.double() @ h.double()) * d.double()).sum() / O)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    size = torch.exp(0.8 * torch.randn(I))
    size[::29] *= 12.0
    mix = torch.eye(I) + 0.25 * torch.randn(I, I) / I**0.5
    x = (torch.randn(N, I) @ mix) * size
    w = torch.randn(O, I) * 0.05
    h = (x.double().T @ x.double() / N).float()
    magnitude = x.abs().double().mean(0).float()
    plain = nearest(w)[0]
    made, codes = gptq(w, h, "none")
    ordered, _ = gptq(w, h, "full")
    grouped, _ = gptq(w, h, "group")
    scaled, scales = awq(w, h, magnitude)
    errors = [error(plain - w, h), error(made - w, h), error(ordered - w, h), error(grouped - w, h), scaled]
    print("errors: nearest %.5g, gptq %.5g, act-order %.5g, by groups %.5g, awq %.5g" % tuple(errors))
    out = pathlib.Path(__file__).parent / "data" / "calibrated.bin"
    with open(out, "wb") as f:
        f.write(struct.pack("<3i", O, I, GROUP))
        for t in (w, h, magnitude):
            f.write(t.contiguous().numpy().tobytes())
        f.write(struct.pack("<5d", *errors))
        f.write(codes.contiguous().numpy().tobytes())
        f.write(scales.float().contiguous().numpy().tobytes())
    print(out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
