#!/usr/bin/env python3
"""Trajectories of torch.amp.GradScaler for sequences of overflows: tests/golden/data/scaler.txt.

    python3 tests/golden/scaler.py

Each line: init scale, growth interval, then for every step "flag:scale" with flag 1 where the gradient was
infinite and the scale (hexadecimal float) after update(). Made with torch 2.x on the CPU; the version used is
the first line's comment.
"""
import pathlib
import random

import torch


def trajectory(init, interval, flags):
    p = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([p], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_interval=interval)
    out = []
    for flag in flags:
        optimizer.zero_grad()
        scaler.scale((p * 1.0).sum()).backward()
        if flag:
            p.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        out.append(f"{flag}:{scaler.get_scale().hex()}")
    return out


def main():
    rng = random.Random(7)
    cases = [
        (1024.0, 2000, [0] * 30 + [1] * 14 + [0] * 10),
        (1024.0, 3, [int(rng.random() < 0.25) for _ in range(120)]),
        (65536.0, 1, [int(rng.random() < 0.5) for _ in range(60)]),
        (2.0**126, 1, [0] * 4 + [1, 0, 0, 0]),  # a scale that would not be finite stays
        (3.0, 2, [1] * 160 + [0] * 4),  # odd, and down into the subnormals
    ]
    lines = [f"# torch {torch.__version__}"]
    for init, interval, flags in cases:
        lines.append(" ".join([init.hex(), str(interval)] + trajectory(init, interval, flags)))
    path = pathlib.Path(__file__).parent / "data" / "scaler.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
