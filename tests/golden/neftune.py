#!/usr/bin/env python3
"""What PyTorch computes when data/models/llama_tied trains with the embedding noise of NEFTune (arXiv:2310.05914).

data/neftune.safetensors:
  input_ids   i32 [B,T]; the target of a token is the next one of its row
  mask        i32 [B,T]     1 where the next token is a target
  loss.plain, loss.noisy    means over the targets, without and with noise of alpha 5
  grad.noisy.TENSOR         gradient of that mean, of the tensors of SHOWN

The noise is uniform in [-5/sqrt(T*C), 5/sqrt(T*C)), added by a hook on the output of the input embeddings, where
transformers' neftune_post_forward_hook adds it. Its numbers are those of the counter RNG (Philox 4x32-10) for SEED,
micro-batch 0 and stream 1: element e of [B,T,C] has word e%4 of block e/4. fp32, eager attention.

Made with torch 2.15.0, transformers 5.23.0:  python tests/golden/neftune.py
"""
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
SHOWN = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight",
         "model.layers.0.self_attn.q_proj.weight", "model.layers.0.input_layernorm.weight")
B, T, ALPHA, SEED = 2, 19, 5.0, 1234


def philox(key, counter):
    """Philox 4x32-10 of the paper "Parallel random numbers: as easy as 1, 2, 3"."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(n, micro, stream):
    words = [w for i in range((n + 3) // 4) for w in philox((SEED, 0), (i, 0, stream, micro))][:n]
    return np.array([w >> 8 for w in words], dtype=np.float64) * 2.0 ** -24


def main():
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "llama_tied", dtype=torch.float32,
                                                 attn_implementation="eager").train()
    width = model.config.hidden_size
    g = torch.Generator().manual_seed(32)
    ids = torch.randint(3, 128, (B, T), generator=g)
    mask = torch.ones(B, T, dtype=torch.int32)
    mask[:, :5] = 0
    mask[:, -1] = 0
    keep = mask[:, :-1].bool()
    tensors = {"input_ids": ids.to(torch.int32), "mask": mask}
    noise = (2.0 * uniform(B * T * width, 0, 1) - 1.0) * ALPHA / np.sqrt(T * width)
    noise = torch.tensor(noise, dtype=torch.float32).reshape(B, T, width)
    print("noise", noise.min().item(), noise.max().item(), noise.std().item())
    for name in ("plain", "noisy"):
        if name == "noisy":
            model.get_input_embeddings().register_forward_hook(lambda module, args, out: out + noise)
        model.zero_grad()
        logits = model(ids, use_cache=False).logits[:, :-1]
        loss = -torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0][keep].mean()
        loss.backward()
        tensors[f"loss.{name}"] = loss.detach().reshape(1)
        print(name, loss.item())
    for key, p in model.named_parameters():
        if key in SHOWN:
            tensors[f"grad.noisy.{key}"] = p.grad.clone()
    save_file(tensors, DATA / "neftune.safetensors", metadata={"format": "pt"})
    (DATA / "neftune.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
