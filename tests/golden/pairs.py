"""Preference pairs and the token ids that TRL makes of them.

data/pairs/pairs.jsonl  records with and without a prompt column
data/pairs/pairs.json   {"NAME": [[prompt ids, chosen ids, rejected ids], ...]} for tokenizers of data/tokenizer

The prompt of records without one comes from TRL's extract_prompt; the tokenisation is the steps of
DPOTrainer._prepare_dataset for text: eos appended where it is missing, prompt and prompt+completion tokenised whole,
cut at the shortest common prefix.

Made with trl 1.16.0, tokenizers 0.23.3:  python tests/golden/pairs.py   (after tokenizer.py)
"""
import json
import pathlib
import random

from tokenizers import Tokenizer
from trl.data_utils import extract_prompt
from trl.trainer.dpo_trainer import common_prefix_length

DATA = pathlib.Path(__file__).parent / "data"
EOS = "<|endoftext|>"
WORDS = ["the", "tool", " turns", "é", "e", "車", " ", "  ", "a", "spindle", ".", " t", "o", "ol", "\n"]


def tokenize(tok, record):
    if "prompt" not in record:
        record = {**record, **extract_prompt(record)}
    end = lambda s: s if s.endswith(EOS) else s + EOS
    prompt = tok.encode(record["prompt"]).ids
    chosen = tok.encode(record["prompt"] + end(record["chosen"])).ids
    rejected = tok.encode(record["prompt"] + end(record["rejected"])).ids
    n = min(common_prefix_length(prompt, chosen), common_prefix_length(prompt, rejected))
    return [prompt[:n], chosen[n:], rejected[n:]]


def main():
    rng = random.Random(11)
    text = lambda n: "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, n)))
    records = [{"prompt": "the to", "chosen": "ol", "rejected": "y"}, {"chosen": "the tool", "rejected": "the"},
               {"chosen": "車床", "rejected": "車軸"}, {"prompt": "", "chosen": "a", "rejected": "b"},
               {"prompt": "a", "chosen": "b" + EOS, "rejected": ""}]
    for k in range(60):
        prompt, chosen, rejected = text(6), text(8), text(8)
        records.append({"prompt": prompt, "chosen": chosen, "rejected": rejected} if k % 2 else
                       {"chosen": "q" + prompt + chosen, "rejected": "q" + prompt + rejected})
    (DATA / "pairs").mkdir(parents=True, exist_ok=True)
    with open(DATA / "pairs" / "pairs.jsonl", "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in records)
    want = {}
    for name in ("gpt2", "llama3"):
        tok = Tokenizer.from_file(str(DATA / "tokenizer" / f"{name}.json"))
        want[name] = [tokenize(tok, r) for r in records]
    with open(DATA / "pairs" / "pairs.json", "w") as f:
        json.dump(want, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
