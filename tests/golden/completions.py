"""Prompts with completions, and the token ids and masks that TRL makes of them.

data/completions/completions.jsonl  records with and without a prompt
data/completions/completions.json   {"NAME": [[ids, number of ids before the completion], ...]} for tokenizers of
                                    data/tokenizer
data/completions/losses.txt         log-probabilities of targets (0: no target); for each loss_type of
                                    SFTTrainer.compute_loss, its name and sum, and the gradient

The tokenisation is the steps of SFTTrainer._prepare_dataset for text: eos appended where it is missing, prompt and
prompt+completion tokenised whole, the completion from where they differ.

Made with trl 1.16.0, tokenizers 0.23.3:  python tests/golden/completions.py   (after tokenizer.py)
"""
import collections
import json
import pathlib
import random
import types

import torch
from tokenizers import Tokenizer
from trl import SFTTrainer
from trl.trainer.sft_trainer import common_prefix_length

DATA = pathlib.Path(__file__).parent / "data"
OUT = DATA / "completions"
EOS = "<|endoftext|>"
WORDS = ["the", "tool", " turns", "é", "e", "車", " ", "  ", "a", "spindle", ".", " t", "o", "ol", "\n"]


def tokenize(tok, record):
    prompt, completion = record.get("prompt", ""), record["completion"]
    end = completion if completion.endswith(EOS) else completion + EOS
    alone, ids = tok.encode(prompt).ids, tok.encode(prompt + end).ids
    return [ids, common_prefix_length(alone, ids)]


def records():
    rng = random.Random(12)
    text = lambda n: "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, n)))
    out = [{"prompt": "the to", "completion": "ol"}, {"completion": "the tool"}, {"prompt": "車", "completion": "床"},
           {"prompt": "", "completion": "a"}, {"prompt": "a", "completion": "b" + EOS}]
    for k in range(60):
        out.append({"prompt": text(6), "completion": text(8)} if k % 4 else {"completion": text(12)})
    return out


class Stub:
    """What compute_loss reads of the trainer."""


def trl_loss(loss_type, logp):
    """The sum of TRL's SFTTrainer.compute_loss over fixed log-probabilities of the targets, and its gradient."""
    logp = logp.clone().requires_grad_(True)
    mask = logp != 0
    s = Stub()
    zeros = torch.zeros_like(logp)
    outputs = types.SimpleNamespace(log_probs=logp, label_mask=mask, entropy=zeros, is_top1=zeros)
    s.model = types.SimpleNamespace(training=False)
    s.accelerator = types.SimpleNamespace(parallelism_config=None, gather_for_metrics=lambda t: t)
    s.args = types.SimpleNamespace(loss_type=loss_type, average_tokens_across_devices=False)
    s.aux_loss_enabled, s.compute_loss_func, s.label_smoother = False, None, None
    s._metrics, s._total_train_tokens = {"eval": collections.defaultdict(list)}, 0
    loss = SFTTrainer.compute_loss(s, lambda **kwargs: outputs, {}, num_items_in_batch=1)
    loss.backward()
    return loss.item(), logp.grad


def losses():
    """Eight places, of which two are no targets: their log-probability is 0."""
    torch.manual_seed(3)
    logp = torch.randn(8, 7, dtype=torch.float64).log_softmax(-1)[:, 0].contiguous()
    logp[2] = logp[5] = 0.0
    line = lambda values: " ".join(f"{x:.17g}" for x in values)
    lines = [line(logp.tolist())]
    for loss_type in ("nll", "dft"):
        loss, grad = trl_loss(loss_type, logp)
        lines += [f"{loss_type} {loss:.17g}", line(grad.tolist())]
    (OUT / "losses.txt").write_text("\n".join(lines) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    list_ = records()
    (OUT / "completions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in list_))
    want = {}
    for name in ("gpt2", "llama3"):
        tok = Tokenizer.from_file(str(DATA / "tokenizer" / f"{name}.json"))
        want[name] = [tokenize(tok, r) for r in list_]
    with open(OUT / "completions.json", "w") as f:
        json.dump(want, f, separators=(",", ":"))
        f.write("\n")
    losses()


if __name__ == "__main__":
    main()
