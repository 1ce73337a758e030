#!/usr/bin/env python3
"""What PEFT and PyTorch compute when a model whose head over the vocabulary has LoRA or DoRA learns from a teacher: from
the model itself, and from its stored log-probabilities.

data/distill_adapted.safetensors:
  input_ids   i32 [B,T]; the target of a token is the next one of its row
  mask        i32 [B,T]     1 where the next token is a target
  For each variant NAME of VARIANTS:
  tokens.NAME, values.NAME   what is stored, as in distill_stored.py; only of variants that learn from stored numbers
  loss.NAME, cross_entropy.NAME, divergence.NAME   means over the targets
  grad.NAME.KEY              gradient of that mean, of each tensor that PEFT trains, under the name of its file

The adapters are those of adapters.py (data/adapters/outer_*). outer_shared: embedding and head share A and B, whose
gradient is the sum of both. In the others head, embedding and linear sites have matrices of their own.
outer_untied, outer_dora_head: llama_untied; outer_apart: llama_tied; outer_dora_softcap: gemma2, tied, with a soft-cap of
the logits. The teacher is qwen2; of gemma2, which has half its vocabulary, gemma3. fp32, eager attention.

Made with torch 2.15.0, transformers 5.23.0, peft 0.21.2:  python tests/golden/distill_adapted.py
"""
import pathlib

import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import distill
import distill_stored
from adapters import gradients

DATA = pathlib.Path(__file__).parent / "data"
B, T = 2, 19
#             name               adapter              model         k  alpha  T   stored T beta tail
VARIANTS = (("untied_lora",      "outer_untied",      "llama_untied", 0, 0.0, 1.5, 1.0, 1.0, True),
            ("tied_lora",        "outer_apart",       "llama_tied",   0, 0.3, 2.0, 1.0, 0.0, True),
            ("untied_dora",      "outer_dora_head",   "llama_untied", 0, 0.5, 1.0, 1.0, 0.3, True),
            ("tied_dora",        "outer_dora_softcap", "gemma2",      0, 0.3, 2.0, 1.0, 0.0, True),
            ("shared_lora",      "outer_shared",      "llama_tied",   0, 0.3, 1.5, 1.0, 0.6, True),
            ("stored_untied_lora", "outer_untied",    "llama_untied", 6, 0.3, 2.0, 1.0, 0.0, False),
            ("stored_tied_lora", "outer_apart",       "llama_tied",   3, 0.5, 1.0, 1.0, 0.3, True),
            ("stored_shared_lora", "outer_shared",    "llama_tied",   4, 0.2, 2.0, 2.0, 1.0, True),
            ("stored_untied_dora", "outer_dora_head", "llama_untied", 5, 0.3, 2.0, 2.0, 0.0, True),
            ("stored_tied_dora", "outer_dora_softcap", "gemma2",      4, 0.0, 1.0, 1.0, 0.7, False))


def load(name):
    return AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32, attn_implementation="eager").eval()


def main():
    teachers = {"gemma2": load("gemma3")}
    others = load("qwen2")
    g = torch.Generator().manual_seed(41)
    ids = torch.randint(3, 64, (B, T), generator=g)
    mask = torch.ones(B, T, dtype=torch.int32)
    mask[:, :4] = 0
    mask[0, 10:13] = 0
    mask[:, -1] = 0
    keep = mask[:, :-1].bool()
    out = {"input_ids": ids.to(torch.int32), "mask": mask}
    for name, adapter, base, k, alpha, temperature, stored_t, beta, tail in VARIANTS:
        with torch.no_grad():
            other = teachers.get(base, others)(ids, use_cache=False).logits
        model = PeftModel.from_pretrained(load(base), DATA / "adapters" / adapter, is_trainable=True).eval()
        trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        own = model(input_ids=ids, use_cache=False).logits[:, :-1]
        ce = -torch.log_softmax(own, -1).gather(-1, ids[:, 1:, None])[..., 0]
        if k == 0:
            d = distill.divergence(own, other[:, :-1], temperature, beta)
        else:
            tokens = other.topk(k, -1).indices
            stored = distill_stored.events(other / stored_t, tokens, True)
            out[f"tokens.{name}"] = torch.where(mask[..., None].bool(), tokens, -1).to(torch.int32)
            out[f"values.{name}"] = torch.where(mask[..., None].bool(), stored, 0.0).contiguous()
            p = distill_stored.events(own / temperature, tokens[:, :-1], tail)
            q = distill_stored.events(other[:, :-1] / temperature, tokens[:, :-1], tail)
            d = distill_stored.divergence(p, q, beta)
        ce, d = ce[keep].mean(), d[keep].mean()
        loss = alpha * ce + (1 - alpha) * temperature ** 2 * d
        loss.backward()
        for key, value in (("loss", loss), ("cross_entropy", ce), ("divergence", d)):
            out[f"{key}.{name}"] = value.detach().reshape(1)
        out |= {f"grad.{name}.{key}": x.contiguous() for key, x in gradients(model, trained).items()}
        print(name, loss.item(), ce.item(), d.item(), len(trained), "trained tensors")
    save_file(out, DATA / "distill_adapted.safetensors", metadata={"format": "pt"})
    (DATA / "distill_adapted.safetensors").chmod(0o644)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
