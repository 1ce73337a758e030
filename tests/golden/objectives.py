#!/usr/bin/env python3
"""What PyTorch computes when data/models/llama_tied trains on packed documents with a prefix and with a masked
objective, with the attention of each as a 4D mask of transformers.

data/objectives.safetensors, for O in prefix, masked:
  O.tokens O.targets O.positions O.doc_start O.key_end   i32 [B,T]; target -1: none; token i of a row sees the
                tokens j of its document with j < key_end
  O.loss        mean of -log p(target) over the targets, f32 [1]
  O.grad.TENSOR gradient of that mean, of the tensors of SHOWN

prefix: the first tokens of each document, its prefix, see each other, later ones those before them; the target of
a token is the next one, if it is after the prefix. masked (arXiv:1810.04805): all tokens of a document see each
other; the target of a chosen token is the token that was there. fp32, eager attention.

Made with torch 2.15.0, transformers 5.24.0:  python tests/golden/objectives.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
SHOWN = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight",
         "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
         "model.layers.0.input_layernorm.weight")
B, T, MASK = 2, 26, 127
# Lengths of the documents of each row, and of their prefixes. The last document of row 1 is padding.
DOCUMENTS = (((11, 4), (15, 14)), ((17, 1), (6, 3), (3, 0)))


def rows():
    """Positions, begins, ends and prefix ends of every token."""
    out = {name: torch.zeros(B, T, dtype=torch.int32) for name in ("positions", "doc_start", "end", "prefix_end")}
    padding = torch.zeros(B, T, dtype=torch.bool)
    for b, documents in enumerate(DOCUMENTS):
        at = 0
        for n, prefix in documents:
            here = slice(at, at + n)
            out["positions"][b, here] = torch.arange(n)
            out["doc_start"][b, here] = at
            out["end"][b, here] = at + n
            out["prefix_end"][b, here] = at + prefix
            padding[b, here] = prefix == 0
            at += n
        assert at == T
    return out, padding


def batches():
    g = torch.Generator().manual_seed(19)
    ids = torch.randint(3, MASK, (B, T), generator=g)
    r, padding = rows()
    index = torch.arange(T).expand(B, T)
    # prefix
    targets = torch.cat([ids[:, 1:], ids[:, :1]], 1)
    learnt = (index + 1 < r["end"]) & (index + 1 >= r["prefix_end"]) & ~padding
    key_end = torch.where(index < r["prefix_end"], r["prefix_end"], index + 1)
    yield "prefix", ids, torch.where(learnt, targets, -1), key_end, r
    # masked: of five chosen tokens three are hidden, one is replaced, one stays
    chosen = (torch.rand(B, T, generator=g) < 0.3) & ~padding
    how = torch.rand(B, T, generator=g)
    other = torch.randint(3, MASK, (B, T), generator=g)
    tokens = torch.where(chosen & (how < 0.6), MASK, torch.where(chosen & (how < 0.8), other, ids))
    yield "masked", tokens, torch.where(chosen, ids, -1), r["end"], r


def main():
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "llama_tied", dtype=torch.float32,
                                                 attn_implementation="eager").train()
    tensors = {}
    for name, tokens, targets, key_end, r in batches():
        index = torch.arange(T)
        sees = (index[None, None, :] >= r["doc_start"][:, :, None]) & (index[None, None, :] < key_end[:, :, None])
        mask = torch.where(sees, 0.0, torch.finfo(torch.float32).min)[:, None]
        model.zero_grad()
        logits = model(tokens, attention_mask=mask, position_ids=r["positions"].long(), use_cache=False).logits
        keep = targets >= 0
        loss = -torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0][keep].mean()
        loss.backward()
        print(name, int(keep.sum()), loss.item())
        for key, value in (("tokens", tokens), ("targets", targets), ("positions", r["positions"]),
                           ("doc_start", r["doc_start"]), ("key_end", key_end)):
            tensors[f"{name}.{key}"] = value.to(torch.int32).clone()
        tensors[f"{name}.loss"] = loss.detach().reshape(1)
        for key, p in model.named_parameters():
            if key in SHOWN:
                tensors[f"{name}.grad.{key}"] = p.grad.clone()
    save_file(tensors, DATA / "objectives.safetensors", metadata={"format": "pt"})
    (DATA / "objectives.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
