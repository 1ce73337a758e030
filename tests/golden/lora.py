#!/usr/bin/env python3
"""Golden values of LoRA and DoRA: PEFT on a torch.nn.Linear and on transformers' Conv1D, in double precision.

Loss = sum(y * t) with a fixed t, so the gradients of A, B and x are exercised with a non-trivial dy.
Also checks that PEFT accepts the adapter_config.json given as an argument (written by the plugin's
test program with LATHE_LORA_CONFIG_OUT=path).

Writes data/lora.txt, read by plugins/adapters/lora/test_lora.c:
    case <linear|conv1d> <r> <alpha> <rslora> <n> <in> <out>
    then one line each: w (as [out, in]), bias, a, b, x, t, y, grad_a, grad_b, grad_x, merged
data/pissa.txt, read by the same program, in which A and B begin with the singular vectors of w, and have moved: lines a0 and
b0 at the end have their start;
and data/dora.txt, read by plugins/adapters/dora/test_dora.c, with m and grad_m after grad_x. There m is not the norms
of w, with which it begins and which the line start_m has.
"""
import pathlib
import sys

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers.pytorch_utils import Conv1D

DATA = pathlib.Path(__file__).parent / "data"


class Tiny(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.q_proj = layer

    def forward(self, x):
        return self.q_proj(x)


def line(name, t):
    return name + " " + " ".join(repr(float(v)) for v in t.detach().flatten()) + "\n"


def case(kind, r, alpha, rslora, n, n_in, n_out, dora=False, pissa=False):
    layer = torch.nn.Linear(n_in, n_out) if kind == "linear" else Conv1D(n_out, n_in)
    torch.nn.init.normal_(layer.bias)
    config = LoraConfig(r=r, lora_alpha=alpha, use_rslora=rslora, use_dora=dora, target_modules=["q_proj"],
                        init_lora_weights="pissa" if pissa else True,
                        fan_in_fan_out=kind == "conv1d")
    original = layer.weight.detach().clone().double()
    model = get_peft_model(Tiny(layer), config).double()
    lora = model.base_model.model.q_proj
    a, b = lora.lora_A["default"].weight, lora.lora_B["default"].weight
    a0, b0 = a.detach().clone(), b.detach().clone()
    if pissa:
        with torch.no_grad():  # the residual in double: PEFT's is rounded to f32
            lora.base_layer.weight.copy_(original - lora.scaling["default"] * (b0 @ a0 if kind == "linear" else (b0 @ a0).T))
            a += 0.3 * torch.randn_like(a)
            b += 0.3 * torch.randn_like(b)
    else:
        torch.nn.init.normal_(b)
    extra = []
    if dora:
        m = lora.lora_magnitude_vector["default"].weight
        start_m = m.detach().clone()
        torch.nn.init.uniform_(m, 0.5, 2.0)
        extra = [m]
    x = torch.randn(n, n_in, dtype=torch.float64, requires_grad=True)
    t = torch.randn(n, n_out, dtype=torch.float64)
    y = model(x)
    grads = torch.autograd.grad((y * t).sum(), [a, b, x, *extra])
    weight = original if kind == "linear" else original.T
    text = f"case {kind} {r} {alpha} {int(rslora)} {n} {n_in} {n_out}\n"
    for name, value in (("w", weight.contiguous()), ("bias", lora.base_layer.bias), ("a", a), ("b", b),
                        ("x", x), ("t", t), ("y", y), ("grad_a", grads[0]), ("grad_b", grads[1]),
                        ("grad_x", grads[2])):
        text += line(name, value.clone())
    if dora:
        text += line("m", m) + line("grad_m", grads[3]) + line("start_m", start_m)
    merged = model.merge_and_unload().q_proj.weight
    text += line("merged", (merged if kind == "linear" else merged.T).contiguous())
    return text + (line("a0", a0) + line("b0", b0) if pissa else "")


def main():
    if len(sys.argv) > 1:
        config = peft.PeftConfig.from_pretrained(str(pathlib.Path(sys.argv[1]).parent))
        print(type(config).__name__, config.r, config.lora_alpha, sorted(config.target_modules),
              config.rank_pattern, config.use_rslora, config.fan_in_fan_out)
        return
    head = (f"# peft {peft.__version__} torch {torch.__version__} "
            f"transformers {transformers.__version__}, float64\n")
    cases = [("linear", 2, 4, False, 3, 5, 4), ("linear", 4, 3, True, 2, 3, 7), ("conv1d", 1, 2, False, 2, 4, 6)]
    for name in ("lora", "dora", "pissa"):
        torch.manual_seed(11)
        text = "".join(case(*(c if name != "pissa" or c[1] < 4 else (c[0], 3, *c[2:])), dora=name == "dora", pissa=name == "pissa") for c in cases)
        (DATA / f"{name}.txt").write_text(head + text)


if __name__ == "__main__":
    main()
