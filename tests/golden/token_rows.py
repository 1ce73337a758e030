"""Rows of the embedding and head that train beside LoRA: PEFT's trainable_token_indices, over ten steps of AdamW.

    python tests/golden/token_rows.py                      writes data/token_rows/
    python tests/golden/token_rows.py MODEL ADAPTER LATHE  compares an adapter that Lathe trained with tokenizer.add_tokens
                                                           over MODEL: the loss of a text in PEFT and in Lathe

Written over the bases of peft_folders.py:

  both/, tied/   the adapter with which the training begins: rows of the embedding and of the head (both), and of the one
                 matrix of a tied model
  losses.txt     case, then the mean loss of each step and the loss after the last one

The text is one row of 64 predictions, the same in every step. All is fp32 on the CPU; the gradients of fp64 give the same
losses within 1e-5. Made with torch 2.15.0, transformers 5.24.0, peft 0.21.2.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

DATA = pathlib.Path(__file__).parent / "data"
TEXT = (DATA / "peft" / "text.txt").read_bytes()
ROWS = [32, 97, 101, 116, 256]
CASES = {"both": ("base", {"embed_tokens": ROWS, "lm_head": ROWS}), "tied": ("tied", ROWS)}
STEPS = 10


def losses_of(model):
    ids = torch.tensor([list(TEXT) + [256]])
    trained = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(trained, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    out = []
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        adam.step()
        adam.zero_grad()
        out.append(float(loss))
    with torch.no_grad():
        out.append(float(model(input_ids=ids, labels=ids).loss))
    return out


def begin(case):
    base, rows = CASES[case]
    model = AutoModelForCausalLM.from_pretrained(DATA / "peft" / base, attn_implementation="eager", dtype=torch.float32)
    torch.manual_seed(7)
    return get_peft_model(model, LoraConfig(r=4, lora_alpha=16, task_type="CAUSAL_LM", target_modules=["q_proj", "down_proj"],
                                            trainable_token_indices=rows))


def make():
    lines = []
    shutil.rmtree(DATA / "token_rows", ignore_errors=True)
    for case in CASES:
        model = begin(case)
        model.base_model.peft_config["default"].base_model_name_or_path = CASES[case][0]
        model.save_pretrained(DATA / "token_rows" / case)
        for name in ["README.md"]:
            (DATA / "token_rows" / case / name).unlink(missing_ok=True)
        seen = losses_of(model)
        wide = losses_of(begin(case).double())
        assert max(abs(a - b) for a, b in zip(seen, wide)) < 1e-5, (case, seen, wide)
        lines.append(" ".join([case, CASES[case][0]] + [f"{x:.9g}" for x in wide]))
        print(lines[-1])
    (DATA / "token_rows" / "losses.txt").write_text("\n".join(lines) + "\n")


def compare(folder, adapter, lathe):
    tok = AutoTokenizer.from_pretrained(adapter)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if len(tok) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tok))
    model = PeftModel.from_pretrained(model, adapter)
    added = [t for t in tok.get_added_vocab() if tok.convert_tokens_to_ids(t) in {
        int(i) for v in [model.peft_config["default"].trainable_token_indices]
        for i in (v if isinstance(v, list) else next(iter(v.values())))}]
    text = "".join(f"{t}The quick brown fox {i}. " for i, t in enumerate(added * 4))
    ids = torch.tensor([tok.encode(text, add_special_tokens=False) + [tok.eos_token_id]])
    with torch.no_grad():
        theirs = float(model(input_ids=ids, labels=ids).loss)
    with tempfile.TemporaryDirectory() as place:
        (pathlib.Path(place) / "x.txt").write_text(text)
        said = subprocess.run([lathe, "eval", adapter, "--data", f"{place}/x.txt", "--data.seq_len", str(ids.shape[1] - 1),
                               "--stage.name", "pretrain", "--train.precision", "fp32", "--json"],
                              check=True, capture_output=True, text=True).stdout
    ours = float(re.search(r'"loss": ([0-9.e+-]+)', said).group(1))
    print(f"tokens {added}; loss {ours:.7f}, of PEFT {theirs:.7f}")
    return 0 if added and abs(ours - theirs) <= 1e-5 * theirs else 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(compare(*sys.argv[1:]) if len(sys.argv) == 4 else make())
