#!/usr/bin/env python3
"""Perplexity of a folder of quant/int8 with activations as they are, and with bitsandbytes' 8-bit
activations, with and without the outlier columns of LLM.int8 (arXiv:2208.07339).

    tests/golden/llm_int8.py FOLDER TEXT [ROWS]

FOLDER: made by `lathe quantize --quant.name int8`. TEXT: ROWS (32) rows of 512 tokens of it are
evaluated, each on its own. Needs torch, transformers and bitsandbytes.
"""
import math
import sys

import torch
import bitsandbytes as bnb
from transformers import AutoModelForCausalLM, AutoTokenizer

LENGTH = 512


def perplexity(model, rows):
    loss = 0.0
    with torch.no_grad():
        for row in rows:
            logits = model(input_ids=row[None]).logits[0, :-1].float()
            loss += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
    return math.exp(loss / (rows.shape[0] * (LENGTH - 1)))


def set_threshold(model, threshold):
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear8bitLt):
            module.state.threshold = threshold


def decode(model):
    """Replaces the layers of 8 bits by plain ones with the decoded weights in f32."""
    for name, module in list(model.named_modules()):
        if isinstance(module, bnb.nn.Linear8bitLt):
            weight = module.weight
            scales = weight.SCB if weight.SCB is not None else module.state.SCB
            plain = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None)
            plain.weight.data = weight.data.float() * scales.float()[:, None] / 127
            if module.bias is not None:
                plain.bias.data = module.bias.data.float()
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], plain)
    return torch.nn.Module.float(model)


def main():
    folder, text = sys.argv[1:3]
    n_rows = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    tokens = AutoTokenizer.from_pretrained(folder)(open(text, encoding="utf-8").read()).input_ids
    n_rows = min(n_rows, len(tokens) // LENGTH)
    rows = torch.tensor(tokens[: n_rows * LENGTH]).view(n_rows, LENGTH)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    layers = sum(isinstance(m, bnb.nn.Linear8bitLt) for m in model.modules())
    print(f"{layers} layers of 8 bits, {n_rows} rows of {LENGTH} tokens")
    for threshold in (0.0, 6.0):
        set_threshold(model, threshold)
        print(f"activations in 8 bits, threshold {threshold}: perplexity {perplexity(model, rows):.3f}")
    print(f"activations in f32: perplexity {perplexity(decode(model), rows):.3f}")


if __name__ == "__main__":
    main()
