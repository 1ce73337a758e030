#!/usr/bin/env python3
"""Golden values of LoRA: PEFT on a torch.nn.Linear and on transformers' Conv1D, in double precision.

Loss = sum(y * t) with a fixed t, so the gradients of A, B and x are exercised with a non-trivial dy.
Also checks that PEFT accepts the adapter_config.json given as an argument (written by the plugin's
test program with LATHE_LORA_CONFIG_OUT=path).

Writes data/lora.txt, read by plugins/adapters/lora/test_lora.c:
    case <linear|conv1d> <r> <alpha> <rslora> <n> <in> <out>
    then one line each: w (as [out, in]), bias, a, b, x, t, y, grad_a, grad_b, grad_x, merged
"""
import pathlib
import sys

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers.pytorch_utils import Conv1D

OUT = pathlib.Path(__file__).parent / "data" / "lora.txt"


class Tiny(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.q_proj = layer

    def forward(self, x):
        return self.q_proj(x)


def line(name, t):
    return name + " " + " ".join(repr(float(v)) for v in t.detach().flatten()) + "\n"


def case(kind, r, alpha, rslora, n, n_in, n_out):
    layer = torch.nn.Linear(n_in, n_out) if kind == "linear" else Conv1D(n_out, n_in)
    torch.nn.init.normal_(layer.bias)
    config = LoraConfig(r=r, lora_alpha=alpha, use_rslora=rslora, target_modules=["q_proj"],
                        fan_in_fan_out=kind == "conv1d")
    model = get_peft_model(Tiny(layer), config).double()
    lora = model.base_model.model.q_proj
    a, b = lora.lora_A["default"].weight, lora.lora_B["default"].weight
    torch.nn.init.normal_(b)
    x = torch.randn(n, n_in, dtype=torch.float64, requires_grad=True)
    t = torch.randn(n, n_out, dtype=torch.float64)
    y = model(x)
    grads = torch.autograd.grad((y * t).sum(), [a, b, x])
    weight = lora.base_layer.weight if kind == "linear" else lora.base_layer.weight.T
    text = f"case {kind} {r} {alpha} {int(rslora)} {n} {n_in} {n_out}\n"
    for name, value in (("w", weight.contiguous()), ("bias", lora.base_layer.bias), ("a", a), ("b", b),
                        ("x", x), ("t", t), ("y", y), ("grad_a", grads[0]), ("grad_b", grads[1]),
                        ("grad_x", grads[2])):
        text += line(name, value.clone())
    merged = model.merge_and_unload().q_proj.weight
    return text + line("merged", (merged if kind == "linear" else merged.T).contiguous())


def main():
    if len(sys.argv) > 1:
        config = peft.PeftConfig.from_pretrained(str(pathlib.Path(sys.argv[1]).parent))
        print(type(config).__name__, config.r, config.lora_alpha, sorted(config.target_modules),
              config.rank_pattern, config.use_rslora, config.fan_in_fan_out)
        return
    torch.manual_seed(11)
    text = (f"# peft {peft.__version__} torch {torch.__version__} "
            f"transformers {transformers.__version__}, float64\n")
    text += case("linear", 2, 4, False, 3, 5, 4)
    text += case("linear", 4, 3, True, 2, 3, 7)
    text += case("conv1d", 1, 2, False, 2, 4, 6)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
