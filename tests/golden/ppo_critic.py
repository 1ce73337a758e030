#!/usr/bin/env python3
"""A critic over a real model: loss and gradient of every parameter of a policy that shares its layers with it.

data/ppo_critic.safetensors, for the folder data/models/llama_tied:
  input_ids i32 [B,T], targets i32 [B,T] (-1: none), value.weight f32 [1,C]
  old_logprobs, old_values, advantages, returns f32 [B,T]: inputs of the loss
  logprobs, values f32 [B,T] of the model and of the head over its last hidden states; 0 where there is no target
  loss f32 [1], grad.TENSOR of every parameter: PPOTrainer.loss of TRL 0.11.4, a mean over the targets, and its gradients

Made with trl 0.11.4 (see ppo.py), torch 2.15.0, transformers 5.23.0:  TRL_0_11=DIR/trl tests/golden/ppo_critic.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from ppo import old_trl, trainer

DATA = pathlib.Path(__file__).parent / "data"
B, T, CLIP, VF_COEF, CLIPRANGE_VALUE = 3, 12, 0.2, 0.5, 0.3


def main():
    old = old_trl()
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "llama_tied", attn_implementation="eager",
                                                 dtype=torch.float32)
    g = torch.Generator().manual_seed(5)
    vocab, width = model.config.vocab_size, model.config.hidden_size
    w = (0.3 * torch.randn(1, width, generator=g)).requires_grad_()
    ids = torch.randint(3, vocab, (B, T), generator=g)
    targets = torch.full((B, T), -1)
    for row, (first, end) in enumerate(((3, 12), (5, 9), (2, 3))):  # tokens first to end are the completion
        targets[row, first - 1:end - 1] = ids[row, first:end]
    mask = (targets >= 0).float()
    hidden = model.model(input_ids=ids).last_hidden_state
    logits = model.lm_head(hidden)
    logp = torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0] * mask
    values = (hidden @ w.T)[..., 0]
    inputs = {"old_logprobs": logp.detach() + 0.3 * torch.randn(B, T, generator=g),
              "old_values": values.detach() + 0.4 * torch.randn(B, T, generator=g),
              "advantages": torch.randn(B, T, generator=g), "returns": torch.randn(B, T, generator=g)}
    inputs = {k: v * mask for k, v in inputs.items()}
    s = trainer(old, cliprange=CLIP, cliprange_value=CLIPRANGE_VALUE, vf_coef=VF_COEF)
    pg, vf, stats = old.loss(s, inputs["old_logprobs"], inputs["old_values"], logits.detach(), values, logp, mask,
                             inputs["advantages"], inputs["returns"])
    (pg + vf).backward()
    print((pg + vf).item(), {k: stats[k].item() for k in ("loss/value", "val/clipfrac", "policy/clipfrac")})
    tensors = {"input_ids": ids.to(torch.int32), "targets": targets.to(torch.int32), "value.weight": w.detach().clone(),
               "logprobs": logp.detach(), "values": (values * mask).detach(), "loss": (pg + vf).detach().reshape(1),
               "grad.value.weight": w.grad, **inputs}
    for name, p in model.named_parameters():
        tensors["grad." + name] = p.grad
    save_file({k: v.contiguous() for k, v in tensors.items()}, DATA / "ppo_critic.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
