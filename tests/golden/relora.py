#!/usr/bin/env python3
"""A run of ReLoRA (arXiv:2307.05695) as PyTorch and PEFT make it: tests/core/train/test_relora.c replays it.

The schedule and the pruning of the optimizer's state are the authors' functions, taken from a checkout of
github.com/Guitaricet/relora (seen at commit 176f376), whose folder is the argument:

    python tests/golden/relora.py .../relora

data/relora.safetensors:
  tokens targets  i32 [M,B,T]   micro-batch m of the run is m modulo M; targets are shifted, -1 is none
  loss lr         f64 [STEPS]
  zeros           i32 [MERGES]  elements of the optimizer's state that are 0 after each merge
  final.NAME      f32           weights of the base after the last step and its merge
  slots           f32 [n]       what pruning is tried on; pruned.R: the same with the ratio R/100 pruned

12 steps of AdamW over llama_untied with LoRA (r 4, alpha 6) on q_proj and v_proj. After steps 4, 8 and 12 the adapter
is merged into the base, A gets new values, B is 0, and 90% of the smallest elements of each moment become 0. The rate
rises for 2 steps at the beginning and after each merge. A has the numbers of the counter RNG (Philox 4x32-10), keyed
by the name of the parameter, and after the merge of step s by a seed that is drawn for s. fp32, eager attention.

Made with torch 2.15.0, transformers 5.24.0, peft 0.21.2.
"""
import ast
import math
import pathlib
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from neftune import philox

DATA = pathlib.Path(__file__).parent / "data"
STEPS, EVERY, WARMUP, RATIO, LR, EPS, MIN_RATIO, SEED = 12, 4, 2, 0.9, 0.005, 1e-5, 0.1, 77
SHOWN = ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.v_proj.weight")


def functions_of(folder):
    """The authors' functions without their imports."""
    source = (pathlib.Path(folder) / "peft_pretraining" / "training_utils.py").read_text()
    wanted = ("magnitude_pruning_", "_get_cosine_schedule_with_multiple_warmups_lambda")
    body = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    names = {"torch": torch, "math": math}
    exec(compile(ast.Module(body, []), "training_utils.py", "exec"), names)
    return [names[w] for w in wanted]


def hash64(text):
    """lathe_hash64: FNV-1a, then MurmurHash3's finaliser."""
    m, h = (1 << 64) - 1, 0xcbf29ce484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001b3 & m
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd & m
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53 & m
    return h ^ (h >> 33)


def block(seed, step, stream, index):
    key = (seed & 0xFFFFFFFF, seed >> 32)
    return philox(key, (index, (stream >> 32) << 16 & 0xFFFFFFFF, stream & 0xFFFFFFFF, step))


def uniform(seed, name, shape):
    """U(-1/sqrt(cols), 1/sqrt(cols)) for a parameter, in f32 as Lathe rounds it."""
    n, stream = math.prod(shape), hash64(name)
    words = [w for i in range((n + 3) // 4) for w in block(seed, 0, stream, i)][:n]
    u = np.array([w >> 8 for w in words], dtype=np.float32) * np.float32(2.0 ** -24)
    scale = np.float32(1.0 / math.sqrt(shape[1]))
    return torch.from_numpy(scale * (np.float32(2) * u - np.float32(1))).reshape(shape)


def begin(model, seed):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_A" in name:
                p.copy_(uniform(seed, name.replace("base_model.model.", "").replace(".default", ""), tuple(p.shape)))
            elif "lora_B" in name:
                p.zero_()


def merge(model):
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "lora_A") and "default" in getattr(module, "lora_A"):
                module.base_layer.weight += module.get_delta_weight("default")


def micro_batches(n, rows, length, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab, (n, rows, length), generator=g)
    for t in range(1, length):
        follows = torch.rand(n, rows, generator=g) < 0.6
        tokens[:, :, t] = torch.where(follows, (tokens[:, :, t - 1] * 5 + 3) % vocab, tokens[:, :, t])
    targets = torch.full_like(tokens, -1)
    targets[:, :, :-1] = tokens[:, :, 1:]
    return tokens, targets


def main(folder):
    prune, rate = functions_of(folder)
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "llama_untied", dtype=torch.float32,
                                                 attn_implementation="eager")
    tokens, targets = micro_batches(3, 2, 16, model.config.vocab_size, 5)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"],
                                             task_type="CAUSAL_LM"))
    begin(model, SEED)
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), eps=EPS, weight_decay=0.0, foreach=False)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: rate(
        s, num_training_steps=STEPS, first_warmup_steps=WARMUP, restart_warmup_steps=WARMUP, restart_every=EVERY,
        min_lr_ratio=MIN_RATIO, adjust_step=0))
    seen = {"loss": [], "lr": []}
    zeros = []
    for step in range(STEPS):
        x, y = tokens[step % len(tokens)], targets[step % len(tokens)]
        opt.zero_grad()
        logp = torch.log_softmax(model(input_ids=x, use_cache=False).logits, -1)
        loss = -(logp.gather(-1, y.clamp(min=0)[..., None])[..., 0] * (y >= 0)).sum() / (y >= 0).sum()
        loss.backward()
        seen["loss"].append(loss.item())
        seen["lr"].append(schedule.get_last_lr()[0])
        opt.step()
        schedule.step()
        if (step + 1) % EVERY == 0:
            merge(model)
            words = block(SEED, step + 1, 0x6d65726765, 0)
            begin(model, words[0] << 32 | words[1])
            for p in trained:
                for key in ("exp_avg", "exp_avg_sq"):
                    prune(opt.state[p][key], RATIO)
            zeros.append(sum(int((opt.state[p][k] == 0).sum()) for p in trained for k in ("exp_avg", "exp_avg_sq")))
    tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in seen.items()}
    tensors.update(tokens=tokens.int(), targets=targets.int(), zeros=torch.tensor(zeros, dtype=torch.int32))
    base = {n.replace("base_model.model.", "").replace(".base_layer", ""): p for n, p in model.named_parameters()}
    tensors.update({"final." + n: base[n].detach().clone() for n in SHOWN})
    slots = torch.randn(1237, generator=torch.Generator().manual_seed(8)) ** 3
    slots[100:300] = 0  # as after an earlier pruning
    tensors["slots"] = slots.clone()
    for percent in (0, 1, 50, 90, 99):
        pruned = slots.clone()
        prune(pruned, percent / 100)
        tensors[f"pruned.{percent}"] = pruned
    save_file({k: v.contiguous() for k, v in tensors.items()}, DATA / "relora.safetensors",
              metadata={"format": "pt"})
    (DATA / "relora.safetensors").chmod(0o644)
    print(seen["loss"], seen["lr"], zeros, [tensors["final." + n].abs().max().item() for n in SHOWN])


if __name__ == "__main__":
    main(sys.argv[1])
