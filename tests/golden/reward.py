#!/usr/bin/env python3
"""A tiny reward model as transformers writes it, and what TRL's RewardTrainer computes with it.

data/reward/llama/               config.json and weights of a LlamaForSequenceClassification with one label
data/reward/golden.safetensors   rows padded with pad_token_id, chosen rows first:
  input_ids  i32 [2P,T]
  scores     f32 [2P]      logits of the model
  margin     f32 [P]
  loss.NAME, metrics.NAME  mean loss, and accuracy, margin, mean_reward, min_reward, max_reward, of a variant:
                           plain; centred (center_rewards_coefficient 0.05); margins (with the column margin)
  grad.NAME.TENSOR         gradient of that mean, for every name of named_parameters()

RewardTrainer.compute_loss runs as TRL ships it on a stand-in of the trainer; fp32, eager attention.

Made with trl 1.16.0, torch 2.15.0, transformers 5.23.0:  python tests/golden/reward.py
"""
import collections
import pathlib
import shutil
import types

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForSequenceClassification
from trl import RewardTrainer

OUT = pathlib.Path(__file__).parent / "data" / "reward"
P, T, PAD = 3, 12, 0
KEYS = ("accuracy", "margin", "mean_reward", "min_reward", "max_reward")


def trl_loss(model, inputs, coefficient):
    s = types.SimpleNamespace(model=model, args=types.SimpleNamespace(center_rewards_coefficient=coefficient),
                              accelerator=types.SimpleNamespace(gather=lambda t: t, gather_for_metrics=lambda t: t),
                              _metrics={"train": collections.defaultdict(list)}, _total_train_tokens=0, _tp_size=1)
    model.train()
    loss = RewardTrainer.compute_loss(s, model, dict(inputs))
    return loss, [s._metrics["train"][k][0] for k in KEYS]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    config = LlamaConfig(vocab_size=96, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
                         pad_token_id=PAD, rms_norm_eps=1e-5, tie_word_embeddings=False, num_labels=1,
                         attn_implementation="eager")
    model = LlamaForSequenceClassification(config)
    g = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            p.copy_(1 + 0.1 * r if p.dim() == 1 else r * (0.5 if "embed" in name or "score" in name else 0.15))
    model.save_pretrained(OUT / "llama")
    model = LlamaForSequenceClassification.from_pretrained(OUT / "llama", attn_implementation="eager")
    ids = torch.randint(3, 96, (2 * P, T), generator=g)
    for row, n in enumerate((12, 5, 8, 7, 12, 1)):
        ids[row, n:] = PAD
    margin = torch.tensor([0.5, 0.0, 1.25])
    tensors = {"input_ids": ids.to(torch.int32), "margin": margin}
    batch = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
    for name, inputs, coefficient in (("plain", batch, None), ("centred", batch, 0.05),
                                      ("margins", dict(batch, margin=margin), None)):
        model.zero_grad()
        loss, metrics = trl_loss(model, inputs, coefficient)
        loss.backward()
        tensors["loss." + name] = loss.detach().reshape(1)
        tensors["metrics." + name] = torch.tensor(metrics, dtype=torch.float32)
        for key, p in model.named_parameters():
            grad = p.grad.clone()
            tensors[f"grad.{name}.{key}"] = grad
        print(name, loss.item(), metrics)
    tensors["scores"] = model(**batch).logits.detach().flatten().contiguous()
    save_file(tensors, OUT / "golden.safetensors", metadata={"format": "pt"})
    for file in OUT.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


if __name__ == "__main__":
    main()
