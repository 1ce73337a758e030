#!/usr/bin/env python3
"""Adaptive quantization noise of QeRL (arXiv:2510.11696): tests/core/run/parts/test_rollout_noise.c compares with it.

The standard deviation is computed by the authors' function, from a checkout of github.com/NVlabs/QeRL (seen at commit
e8c6e79), whose folder is the argument:

    python tests/golden/aqn.py .../QeRL

data/aqn.safetensors:
  sigma.K     f64 [TOTAL + 1]  at the steps 0 to TOTAL of a run of TOTAL steps with K stages, from 1e-2 to 5e-4
  input_ids   i32 [B,T]
  logits      f32 [B,T,V]      of data/models/llama_untied with the linear weights of its layers quantized to nf4 and
                               decoded by bitsandbytes, and noise of 0.05 in the norms that these layers read

The noise is added to input_layernorm and post_attention_layernorm; the norm before the head, which is not quantized,
has none. Its numbers are standard normal from the counter RNG (Philox 4x32-10), keyed by the name of the parameter and
by a seed that is drawn for STEP from the run's SEED: Box-Muller, two pairs a block. fp32, eager attention.

Made with torch 2.15.0, transformers 5.24.0, bitsandbytes 0.50.2.
"""
import ast
import pathlib
import sys

import quant  # noqa: F401  first: keeps bitsandbytes' own CPU library from loading, see there
import bitsandbytes.functional as bnb
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from relora import block, hash64

DATA = pathlib.Path(__file__).parent / "data"
SIGMA, SEED, STEP, TOTAL = 0.05, 77, 7, 60


def sigma_of(folder):
    source = (pathlib.Path(folder) / "trl_trainer" / "noise_scheduler.py").read_text()
    body = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "get_sigma_by_step"]
    names = {}
    exec(compile(ast.Module(body, []), "noise_scheduler.py", "exec"), names)
    return names["get_sigma_by_step"]


def normals(seed, name, n):
    words = np.array([block(seed, 0, hash64(name), i) for i in range((n + 3) // 4)], dtype=np.float64)
    out = np.empty((len(words), 4))
    for pair in (0, 1):
        r = np.sqrt(-2.0 * np.log((words[:, 2 * pair] + 0.5) * 2.0 ** -32))
        t = 2.0 * np.pi * words[:, 2 * pair + 1] * 2.0 ** -32
        out[:, 2 * pair], out[:, 2 * pair + 1] = r * np.cos(t), r * np.sin(t)
    return torch.tensor(out.reshape(-1)[:n], dtype=torch.float32)


def main(folder):
    sigma = sigma_of(folder)
    tensors = {}
    for stages in (3, 10):
        trend = (1e-2 * (5e-4 / 1e-2) ** (np.arange(stages - 1) / (stages - 2))).tolist()
        tensors[f"sigma.{stages}"] = torch.tensor([float(sigma(s, TOTAL, trend)[1]) for s in range(TOTAL + 1)],
                                                  dtype=torch.float64)
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "llama_untied", dtype=torch.float32,
                                                 attn_implementation="eager")
    words = block(SEED, STEP, 0x6e6f697365, 0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2 and "layers" in name:
                packed, state = bnb.quantize_4bit(p.data, quant_type="nf4", compress_statistics=True)
                p.data = bnb.dequantize_4bit(packed, state)
            elif name.endswith(("input_layernorm.weight", "post_attention_layernorm.weight")):
                p += SIGMA * normals(words[0] << 32 | words[1], name, p.numel())
        ids = load_file(DATA / "models" / "llama_untied" / "golden.safetensors")["input_ids"].long()
        tensors.update(input_ids=ids.int(), logits=model(input_ids=ids, use_cache=False).logits.contiguous())
    save_file(tensors, DATA / "aqn.safetensors", metadata={"format": "pt"})
    (DATA / "aqn.safetensors").chmod(0o644)
    print({k: v.flatten()[-1].item() for k, v in tensors.items()})


if __name__ == "__main__":
    main(sys.argv[1])
