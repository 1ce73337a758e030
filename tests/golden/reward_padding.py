#!/usr/bin/env python3
"""Reward models of several families, and their scores of sequences of differing length, as transformers gives them to a
padded batch: AutoModelForSequenceClassification takes the output at the last token that is not pad_token_id.

data/reward_padding/FAMILY/       config.json and weights of a model with one label
data/reward_padding/scores.json   {"rows": [[ids], ...], FAMILY: [scores]}: the rows without their padding; some end with
                                  the padding token, as chats do where it is the end of the text, too, and one has
                                  no other token

The scores of the padded batch are compared with those of each row alone. fp32, eager attention.

Made with transformers 5.24:  python tests/golden/reward_padding.py
"""
import json
import pathlib
import shutil

import torch
from transformers import (AutoModelForSequenceClassification, Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, LlamaConfig,
                          MistralConfig, Phi3Config, Qwen2Config, Qwen3Config)

OUT = pathlib.Path(__file__).parent / "data" / "reward_padding"
V, T, PAD = 48, 12, 2  # the padding token is the end of the text
COMMON = dict(vocab_size=V, bos_token_id=1, eos_token_id=PAD, pad_token_id=PAD, num_labels=1)
SHAPE = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32)
FAMILIES = {
    "llama": LlamaConfig(**COMMON, **SHAPE, num_key_value_heads=1, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**COMMON, **SHAPE, num_key_value_heads=1),
    "qwen3": Qwen3Config(**COMMON, **SHAPE, num_key_value_heads=1, head_dim=8),
    "gemma2": Gemma2Config(**COMMON, **SHAPE, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=4),
    "gemma3_text": Gemma3TextConfig(**COMMON, **SHAPE, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=4),
    "mistral": MistralConfig(**COMMON, **SHAPE, num_key_value_heads=1, head_dim=8, sliding_window=4),
    "phi3": Phi3Config(**COMMON, **SHAPE, num_key_value_heads=1),
    "gpt2": GPT2Config(**COMMON, n_embd=16, n_layer=2, n_head=2, n_positions=32),
    "gpt_neox": GPTNeoXConfig(**COMMON, **SHAPE),
}
ROWS = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [1, 20, 21], [30], [1, 9, 8, 7, 40, PAD], [1, 9, 8, 7, 40, PAD, PAD],
        [1, PAD, 33, 34], [PAD, PAD, PAD], [1, 17, 18, 19, 25, 26, 27, 28, 29, PAD, 31, PAD]]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    out = {"rows": ROWS}
    g = torch.Generator().manual_seed(5)
    for name, config in FAMILIES.items():
        config._attn_implementation = "eager"
        model = AutoModelForSequenceClassification.from_config(config).float().eval()
        with torch.no_grad():
            for p in model.parameters():
                r = torch.randn(p.shape, generator=g)
                p.copy_(1 + 0.1 * r if p.dim() == 1 else 0.4 * r)
        model.save_pretrained(OUT / name)
        model = AutoModelForSequenceClassification.from_pretrained(OUT / name, attn_implementation="eager").eval()
        ids = torch.tensor([r + [PAD] * (T - len(r)) for r in ROWS])
        mask = torch.tensor([[1] * len(r) + [0] * (T - len(r)) for r in ROWS])
        with torch.no_grad():
            scores = model(input_ids=ids, attention_mask=mask).logits.flatten()
            alone = torch.stack([model(input_ids=torch.tensor([r])).logits[0, 0] for r in ROWS])
        assert (scores - alone).abs().max() < 1e-5, (name, scores, alone)
        out[name] = scores.tolist()
        print(name, out[name])
    (OUT / "scores.json").write_text(json.dumps(out, indent=1) + "\n")
    for file in OUT.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


main()
