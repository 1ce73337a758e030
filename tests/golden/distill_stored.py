#!/usr/bin/env python3
"""What PyTorch computes when the model of data/models/llama_tied learns from stored log-probabilities of that of
data/models/qwen2: the k most likely tokens at each target, and all other tokens together.

data/distill_stored.safetensors:
  input_ids   i32 [B,T]; the target of a token is the next one of its row
  mask        i32 [B,T]     1 where the next token is a target
  For each variant NAME of VARIANTS:
  tokens.NAME i32 [B,T,k], values.NAME f32 [B,T,k+1]  what is stored: the teacher's most likely tokens, of logits
                                   divided by the stored temperature, and their log-probabilities; last, that of all
                                   other tokens together; -1 and 0 where the mask is 0
  loss.NAME, cross_entropy.NAME, divergence.NAME      means over the targets
  grad.NAME.TENSOR                                    gradient of that mean, of the tensors of SHOWN

With a tail, p and q have k + 1 events; without, both are normalised over the k tokens. These are the two ways of TRL's
ServerDistillationTrainer (loss_add_tail), whose functions this script calls and compares. fp32, eager attention.

Made with trl 1.16.0, torch 2.15.0, transformers 5.23.0:  python tests/golden/distill_stored.py
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
SHOWN = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight",
         "model.layers.0.self_attn.q_proj.weight", "model.layers.0.input_layernorm.weight")
B, T = 2, 19
#           name            k  alpha  T    stored T  beta  tail
VARIANTS = (("tail_forward", 5, 0.3, 2.0, 2.0, 0.0, True), ("tail_reverse", 7, 0.0, 1.5, 1.5, 1.0, True),
            ("tail_jsd", 3, 0.5, 1.0, 1.0, 0.3, True), ("alone_forward", 6, 0.3, 2.0, 1.0, 0.0, False),
            ("alone_jsd", 4, 0.0, 1.0, 1.0, 0.7, False))


def divergence(p, q, beta):
    """Of rows of log-probabilities."""
    kl = lambda a, b: (a.exp() * (a - b)).sum(-1)
    if beta == 0:
        return kl(q, p)
    if beta == 1:
        return kl(p, q)
    m = torch.logsumexp(torch.stack([p + torch.log1p(torch.tensor(-beta)), q + torch.tensor(beta).log()]), 0)
    return beta * kl(q, m) + (1 - beta) * kl(p, m)


def events(logits, tokens, tail):
    """Log-probabilities of the tokens, and of all others together or normalised."""
    logp = F.log_softmax(logits, -1).gather(-1, tokens)
    if not tail:
        return F.log_softmax(logp, -1)
    others = logits.scatter(-1, tokens, float("-inf"))
    rest = torch.logsumexp(others, -1, keepdim=True) - torch.logsumexp(logits, -1, keepdim=True)
    return torch.cat([logp, rest], -1)


def compare_with_trl(p, q, beta, tail, ours):
    try:
        from trl.experimental.server_distillation import server_distillation_trainer as trl
    except ImportError:
        return "no ServerDistillationTrainer in this TRL"
    p, q = (x[..., :-1] if tail else x for x in (p, q))
    mask = torch.ones_like(p, dtype=torch.bool)
    if tail:
        p, both = trl._add_tail_bucket(p, mask)
        q, _ = trl._add_tail_bucket(q, mask)
        mask = both
    d = trl._jsd_divergence(p, q, beta, mask).sum(-1).mean().item()
    assert abs(d - ours) < 2e-5 * abs(ours), (d, ours)
    return f"TRL {d}"


def main():
    load = lambda name: AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32,
                                                             attn_implementation="eager").eval()
    student, teacher = load("llama_tied"), load("qwen2")
    g = torch.Generator().manual_seed(37)
    ids = torch.randint(3, 128, (B, T), generator=g)
    mask = torch.ones(B, T, dtype=torch.int32)
    mask[:, :4] = 0
    mask[1, 8:11] = 0
    mask[:, -1] = 0
    keep = mask[:, :-1].bool()
    tensors = {"input_ids": ids.to(torch.int32), "mask": mask}
    with torch.no_grad():
        other = teacher(ids, use_cache=False).logits
    for name, k, alpha, temperature, stored_t, beta, tail in VARIANTS:
        student.zero_grad()
        tokens = other.topk(k, -1).indices
        stored = events(other / stored_t, tokens, True)
        tensors[f"tokens.{name}"] = torch.where(mask[..., None].bool(), tokens, -1).to(torch.int32)
        tensors[f"values.{name}"] = torch.where(mask[..., None].bool(), stored, 0.0).contiguous()
        own = student(ids, use_cache=False).logits[:, :-1]
        ce = -torch.log_softmax(own, -1).gather(-1, ids[:, 1:, None])[..., 0]
        p = events(own / temperature, tokens[:, :-1], tail)
        q = events(other[:, :-1] / temperature, tokens[:, :-1], tail)
        d = divergence(p, q, beta)
        ce, mean = ce[keep].mean(), d[keep].mean()
        loss = alpha * ce + (1 - alpha) * temperature ** 2 * mean
        loss.backward()
        tensors[f"loss.{name}"], tensors[f"cross_entropy.{name}"] = loss.detach().reshape(1), ce.detach().reshape(1)
        tensors[f"divergence.{name}"] = mean.detach().reshape(1)
        for key, w in student.named_parameters():
            if key in SHOWN:
                tensors[f"grad.{name}.{key}"] = w.grad.clone()
        print(name, loss.item(), ce.item(), mean.item(),
              compare_with_trl(p.detach()[keep], q[keep], beta, tail, mean.item()))
    save_file(tensors, DATA / "distill_stored.safetensors", metadata={"format": "pt"})
    (DATA / "distill_stored.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
