#!/usr/bin/env python3
"""What PyTorch computes when the model of data/models/llama_tied learns from that of data/models/qwen2.

data/distill.safetensors:
  input_ids   i32 [B,T]; the target of a token is the next one of its row
  mask        i32 [B,T]     1 where the next token is a target
  For each variant NAME: forward (alpha 0.3, T 2), reverse (alpha 0, T 1.5), jsd (alpha 0.5, T 1, beta 0.3):
  loss.NAME, cross_entropy.NAME, divergence.NAME   means over the targets
  grad.NAME.TENSOR                                 gradient of that mean, of the tensors of SHOWN

data/distill_padded.safetensors: the same for two teachers whose embedding was filled up to other rows than the model's 128,
data/distill_teachers/more (150) and fewer (100); ids are below 64, the number of tokens of tiny_64.json. Names are NAME.TEACHER.
The distributions of a divergence are those of the rows that both models have.

The divergences are torch.nn.functional.kl_div of log_softmax of the logits; jsd is the formula of TRL's
GKDTrainer.generalized_jsd_loss, which this script calls and compares. fp32, eager attention.

Made with trl 1.16.0, torch 2.15.0, transformers 5.23.0:  python tests/golden/distill.py
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


def divergence(student, teacher, temperature, beta):
    p = F.log_softmax(student / temperature, -1)
    q = F.log_softmax(teacher / temperature, -1)
    if beta == 0:
        return F.kl_div(p, q, reduction="none", log_target=True).sum(-1)
    if beta == 1:
        return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    m = torch.logsumexp(torch.stack([p + torch.log1p(torch.tensor(-beta)), q + torch.tensor(beta).log()]), 0)
    return (beta * F.kl_div(m, q, reduction="none", log_target=True).sum(-1) +
            (1 - beta) * F.kl_div(m, p, reduction="none", log_target=True).sum(-1))


def compare_with_trl(student, teacher):
    try:
        from trl.experimental.gkd import GKDTrainer
    except ImportError:
        print("no GKDTrainer in this TRL")
        return
    for beta in (0.0, 0.3, 1.0):
        ours = divergence(student, teacher, 1.0, beta).sum() / student.shape[0]
        trl = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, temperature=1.0, reduction="batchmean")
        print("beta", beta, "ours", ours.item(), "TRL", trl.item())


VARIANTS = (("forward", 0.3, 2.0, 0.0), ("reverse", 0.0, 1.5, 1.0), ("jsd", 0.5, 1.0, 0.3))


def batch(seed, n_tokens):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, n_tokens, (B, T), generator=g)
    mask = torch.ones(B, T, dtype=torch.int32)
    mask[:, :5] = 0
    mask[1, 9:12] = 0
    mask[:, -1] = 0
    return ids, mask


def learn(student, teacher, ids, mask, tensors, suffix=""):
    """Adds what is computed of each variant to `tensors`; returns the logits of both models at the targets."""
    keep = mask[:, :-1].bool()
    with torch.no_grad():
        other = teacher(ids, use_cache=False).logits[:, :-1]
    for name, alpha, temperature, beta in VARIANTS:
        student.zero_grad()
        own = student(ids, use_cache=False).logits[:, :-1]
        common = min(own.shape[-1], other.shape[-1])
        ce = -torch.log_softmax(own, -1).gather(-1, ids[:, 1:, None])[..., 0]
        d = divergence(own[..., :common], other[..., :common], temperature, beta)
        ce, d = ce[keep].mean(), d[keep].mean()
        loss = alpha * ce + (1 - alpha) * temperature ** 2 * d
        loss.backward()
        name += suffix
        tensors[f"loss.{name}"], tensors[f"cross_entropy.{name}"] = loss.detach().reshape(1), ce.detach().reshape(1)
        tensors[f"divergence.{name}"] = d.detach().reshape(1)
        for key, p in student.named_parameters():
            if key in SHOWN:
                tensors[f"grad.{name}.{key}"] = p.grad.clone()
        print(name, loss.item(), ce.item(), d.item())
    return own.detach()[keep], other[keep]


def padded_teacher(name, rows):
    """The model of models/qwen2 with another number of rows in its embedding and head, random ones where it had none."""
    torch.manual_seed(rows)
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "qwen2", dtype=torch.float32, attn_implementation="eager").eval()
    model.resize_token_embeddings(rows, mean_resizing=False)
    folder = DATA / "distill_teachers" / name
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return model


def save(tensors, name):
    save_file(tensors, DATA / name, metadata={"format": "pt"})
    (DATA / name).chmod(0o644)


def main():
    load = lambda name: AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32,
                                                             attn_implementation="eager").eval()
    student, teacher = load("llama_tied"), load("qwen2")
    ids, mask = batch(31, 128)
    tensors = {"input_ids": ids.to(torch.int32), "mask": mask}
    compare_with_trl(*learn(student, teacher, ids, mask, tensors))
    save(tensors, "distill.safetensors")
    ids, mask = batch(32, 64)
    tensors = {"input_ids": ids.to(torch.int32), "mask": mask}
    for name, rows in (("more", 150), ("fewer", 100)):
        learn(student, padded_teacher(name, rows), ids, mask, tensors, "." + name)
    save(tensors, "distill_padded.safetensors")


if __name__ == "__main__":
    main()
