#!/usr/bin/env python3
"""Writes data/diloco.txt: five outer steps of DiLoCo by torch.optim.SGD(nesterov=True).

usage: diloco.py     needs torch

Line 1: rounds, elements, outer learning rate, momentum. Then for each round a line of the weights that its inner steps
end with, and one of the weights after the outer step. The first round begins with zeros.
"""
import pathlib

import torch

ROUNDS, N, LR, MOMENTUM = 5, 8, 0.7, 0.9


def main():
    torch.manual_seed(1)
    start = torch.nn.Parameter(torch.zeros(N))
    outer = torch.optim.SGD([start], lr=LR, momentum=MOMENTUM, nesterov=True)
    lines = [f"{ROUNDS} {N} {LR} {MOMENTUM}"]
    for _ in range(ROUNDS):
        inner = (start.detach() + 0.1 * torch.randn(N)).clone()
        start.grad = start.detach() - inner
        outer.step()
        for values in (inner, start.detach()):
            lines.append(" ".join(f"{v:.9g}" for v in values.tolist()))
    (pathlib.Path(__file__).parent / "data" / "diloco.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
