#!/usr/bin/env python3
"""Golden values of OFT: PEFT on a torch.nn.Linear, in double precision. (PEFT has no OFT for Conv1D.)

Loss = sum(y * t) with a fixed t, so the gradients of the rotation and of x are exercised with a non-trivial dy.

Writes data/oft.txt, read by plugins/adapters/oft/test_oft.c:
    case <block_size> <terms> <n> <in> <out> <blocks> <elements of a block>
    then one line each: w (as [out, in]), bias, v, x, t, y, grad_v, grad_x, merged
"""
import peft
import torch
import transformers
from lora import DATA, Tiny, line
from peft import OFTConfig, get_peft_model


def case(block, terms, n, n_in, n_out):
    layer = torch.nn.Linear(n_in, n_out)
    config = OFTConfig(oft_block_size=block, num_cayley_neumann_terms=terms, use_cayley_neumann=True,
                       target_modules=["q_proj"])
    model = get_peft_model(Tiny(layer), config).double()
    oft = model.base_model.model.q_proj
    v = oft.oft_R["default"].weight
    torch.nn.init.normal_(v, std=0.3)
    x = torch.randn(n, n_in, dtype=torch.float64, requires_grad=True)
    t = torch.randn(n, n_out, dtype=torch.float64)
    y = model(x)
    grad_v, grad_x = torch.autograd.grad((y * t).sum(), [v, x])
    base = oft.base_layer
    text = f"case {block} {terms} {n} {n_in} {n_out} {v.shape[0]} {v.shape[1]}\n"
    for name, value in (("w", base.weight), ("bias", base.bias), ("v", v), ("x", x), ("t", t), ("y", y), ("grad_v", grad_v),
                        ("grad_x", grad_x)):
        text += line(name, value.clone())
    return text + line("merged", model.merge_and_unload().q_proj.weight)


def main():
    torch.manual_seed(12)
    head = (f"# peft {peft.__version__} torch {torch.__version__} "
            f"transformers {transformers.__version__}, float64\n")
    cases = [(3, 5, 3, 6, 4), (2, 2, 2, 4, 5), (4, 3, 2, 8, 3), (5, 8, 2, 6, 3),
             (32, 4, 2, 4, 3)]
    (DATA / "oft.txt").write_text(head + "".join(case(*c) for c in cases))


if __name__ == "__main__":
    main()
