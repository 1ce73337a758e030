"""Goldens of generation_config.json: what transformers' generate does with it when its caller sets nothing else.

    python tests/golden/generation.py      writes data/generation.json

"greedy" has the new tokens of the model data/models/llama_untied behind the bytes of PROMPT; "sampled" the
probabilities from which the first of them is drawn. Made with transformers 5.23.0 and torch 2.15.0.
"""

import json
import pathlib
import shutil
import tempfile

import torch
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
NEVER = 126  # a token that none of them makes
PROMPT = "the wheel turns the wheel"

GREEDY = {
    "empty": {},
    "sampling settings without do_sample": {"temperature": 0.6, "top_k": 3, "top_p": 0.5, "max_new_tokens": 12},
    "temperature 0 without do_sample": {"temperature": 0.0, "do_sample": False, "max_new_tokens": 12},
    "repetition penalty above 1": {"repetition_penalty": 1.3, "max_new_tokens": 24},
    "repetition penalty below 1": {"repetition_penalty": 0.8, "max_new_tokens": 24},
    "max_length": {"max_length": len(PROMPT) + 7},
    "max_new_tokens before max_length": {"max_length": len(PROMPT) + 7, "max_new_tokens": 9},
    "an end of text": {"eos_token_id": "second", "max_new_tokens": 24},
    "a list of ends of text": {"eos_token_id": ["never", "second", "fifth"], "max_new_tokens": 24},
    "config.json's end of text is not in the list": {"eos_token_id": ["never"], "max_new_tokens": 24,
                                                     "of_config": "second"},
}
SAMPLED = {
    "do_sample alone": {"do_sample": True},
    "temperature": {"do_sample": True, "temperature": 0.6, "top_k": 0},
    "top_k": {"do_sample": True, "top_k": 5},
    "top_p": {"do_sample": True, "top_p": 0.7, "top_k": 0},
    "min_p": {"do_sample": True, "min_p": 0.3, "top_k": 0},
    "all": {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2},
    "null keys": {"do_sample": True, "temperature": None, "top_k": None, "top_p": None, "repetition_penalty": None},
}


def generate(generation, config_eos, **how):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DATA / "models" / "llama_untied", folder, dirs_exist_ok=True)
        path = pathlib.Path(folder)
        config = json.loads((path / "config.json").read_text())
        config["eos_token_id"] = config_eos
        (path / "config.json").write_text(json.dumps(config))
        (path / "generation_config.json").write_text(json.dumps(generation))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([list(PROMPT.encode())])
    return model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **how)


def main():
    n = len(PROMPT)
    free = generate({"max_new_tokens": 24, "eos_token_id": []}, None)[0, n:].tolist()
    different = list(dict.fromkeys(free))
    ids = {"second": different[1], "fifth": different[-1], "never": NEVER}

    def named(x):
        return [named(i) for i in x] if isinstance(x, list) else ids.get(x, x)

    greedy, sampled = [], []
    for name, settings in GREEDY.items():
        settings = {k: named(v) for k, v in settings.items()}
        eos = settings.pop("of_config", ids["never"])
        how = {} if "max_new_tokens" in settings or "max_length" in settings else {"max_new_tokens": 12}
        tokens = generate(settings, eos, **how)[0, n:].tolist()
        assert NEVER not in tokens, name
        greedy.append(dict(name=name, file=settings, config_eos=eos, max_new_tokens=how.get("max_new_tokens", 0),
                           tokens=tokens))
    for name, settings in SAMPLED.items():
        torch.manual_seed(0)
        out = generate(settings, ids["never"], max_new_tokens=1, output_scores=True, return_dict_in_generate=True)
        shares = torch.softmax(out.scores[0][0].double(), -1).tolist()
        sampled.append(dict(name=name, file=settings, shares={str(i): round(p, 9) for i, p in enumerate(shares) if p > 0}))
    lines = [json.dumps(x) for x in greedy], [json.dumps(x) for x in sampled]
    text = (json.dumps({"prompt": PROMPT})[:-1] + ',\n"greedy": [\n' + ",\n".join(lines[0]) + '],\n"sampled": [\n'
            + ",\n".join(lines[1]) + "]}\n")
    json.loads(text)
    (DATA / "generation.json").write_text(text)
    for x in greedy:
        print(x["name"], x["file"], x["tokens"])


if __name__ == "__main__":
    main()
