#!/usr/bin/env python3
"""Whether what Lathe saved loads in transformers and PEFT as it stands, and computes the same.

    python tests/golden/check_saved.py DIR LATHE_BIN [TEXT]

DIR is a model folder that Lathe wrote. It is loaded unchanged (no missing and no unexpected tensors allowed), its
loss on TEXT (a file; without it, this one) is compared with what `LATHE_BIN eval` says, to 2e-5 of it in fp32, and
both continue a prompt greedily. Or DIR is an adapter whose adapter_config.json names its base: PEFT must hold
exactly the tensors of the file. Exit status 0: they agree.

Used with torch 2.15.0, transformers 5.23.0, peft 0.21.2, tokenizers 0.23.3.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

PROMPT, NEW, ROW = "the ", 12, 64


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    return model, {k: info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[k]}


def check_adapter(folder):
    """Every tensor of the file has its place in PEFT's model, every one of PEFT's is in the file, and they move
    the logits."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors.torch import load_file
    base, bad = load(json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"])
    ids = torch.arange(32)[None] % base.config.vocab_size
    with torch.no_grad():
        plain = base(ids).logits
        model = PeftModel.from_pretrained(base, folder).eval()
        moved = (model(ids).logits - plain).abs().max().item()
    file, held = load_file(folder / "adapter_model.safetensors"), get_peft_model_state_dict(model)
    same = file.keys() == held.keys() and all(torch.equal(file[k], held[k]) for k in file)
    print(f"PEFT holds {len(held)} tensors, the file {len(file)}, equal: {same}; logits moved by {moved:.3g}", bad)
    return 0 if same and moved > 0 and not bad else 1


def encoder(folder):
    path = folder / "tokenizer.json"
    if path.exists():
        tok = Tokenizer.from_file(str(path))
        return lambda text: tok.encode(text, add_special_tokens=False).ids, tok.decode
    return (lambda text: list(text.encode())), (lambda ids: bytes(i for i in ids if i < 256).decode(errors="replace"))


def loss_of(model, ids):
    """Mean over the targets of rows of ROW tokens; each row predicts its own next tokens and the one behind it."""
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(ids) - 1, ROW):
            row, nxt = ids[at:at + ROW], ids[at + 1:at + ROW + 1]
            row = row[:len(nxt)]
            logp = torch.log_softmax(model(torch.tensor([row]), use_cache=False).logits[0].double(), -1)
            total -= logp[range(len(nxt)), nxt].sum().item()
            count += len(nxt)
    return total / count, count


def main():
    folder, lathe = pathlib.Path(sys.argv[1]), sys.argv[2]
    if (folder / "adapter_config.json").exists():
        return check_adapter(folder)
    model, bad = load(folder)
    encode, decode = encoder(folder)
    text = (pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(__file__)).read_text()[:6000]
    text = text.encode("ascii", "ignore").decode()
    print("loaded", type(model).__name__, sum(p.numel() for p in model.parameters()), "parameters", bad or "")
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "text.txt"
        path.write_text(text)
        said = json.loads(subprocess.run(
            [lathe, "eval", folder, "--data", path, "--json", "--data.seq_len", str(ROW), "--train.precision", "fp32",
             "--data.cache_dir", scratch + "/cache"], check=True, capture_output=True, text=True).stdout)
    ids = encode(text)
    loss, count = loss_of(model, ids + [model.config.eos_token_id or 0])
    print(f"transformers: loss {loss:.7f} over {count}; lathe eval: {said}")
    greedy = encode(PROMPT)
    with torch.no_grad():
        for _ in range(NEW):
            greedy.append(model(torch.tensor([greedy]), use_cache=False).logits[0, -1].argmax().item())
    ours = subprocess.run([lathe, "generate", folder, "--prompt", PROMPT, "--max-new-tokens", str(NEW), "--temperature",
                           "0", "--ignore-eos", "--train.precision", "fp32", "--data.seq_len", str(ROW)], check=True,
                          capture_output=True, text=True).stdout
    theirs = decode(greedy)
    print("transformers:", repr(theirs), "lathe:", repr(ours))
    same = abs(said["loss"] - loss) <= 2e-5 * loss and ours.rstrip("\n") == theirs.rstrip("\n")
    print("agree" if same and not bad else "DIFFER")
    return 0 if same and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
