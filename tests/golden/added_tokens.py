"""Compares `lathe tokenizer add` with add_tokens and resize_token_embeddings of transformers.

    python tests/golden/added_tokens.py MODEL_DIR LATHE [--init mean|noise] [--pad N]

Checks that transformers loads what Lathe has written, with the ids of tokens in texts that transformers gives after
add_tokens; that old rows keep their bits; and prints how far new rows are from the mean that mean_resizing takes, and the
loss of a text with the tokens in both. Exit code 0: ids are equal, old rows too, and the rows differ by less than five
deviations of the noise of mean_resizing (sqrt(1e-9) of a column's) and one rounding.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = ["<think>", "</think>", "<|tool|>"]
TEXTS = ["<think> a b</think>c", "x<|tool|>y <think>", "plain text", " <think>\n</think> <|tool|><|tool|>"]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("lathe")
    args.add_argument("--init", default="mean")
    args.add_argument("--pad", type=int)
    args = args.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = pathlib.Path(place) / "grown"
        pad = ["--pad-to-multiple-of", str(args.pad)] if args.pad else []
        subprocess.run([args.lathe, "tokenizer", "add", args.folder, *TOKENS, "-o", out, "--init", args.init, *pad], check=True)
        ours, tok = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32), AutoTokenizer.from_pretrained(out)
    theirs, their_tok = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32), AutoTokenizer.from_pretrained(args.folder)
    their_tok.add_tokens(TOKENS, special_tokens=True)
    old = theirs.get_input_embeddings().weight.detach().float().clone()
    torch.manual_seed(0)
    theirs.resize_token_embeddings(max(len(their_tok), old.shape[0]), pad_to_multiple_of=args.pad)
    good = [tok.encode(t) for t in TEXTS] == [their_tok.encode(t) for t in TEXTS]
    print("ids equal:", good)
    for name in ("get_input_embeddings", "get_output_embeddings"):
        a, b = (getattr(m, name)().weight.detach() for m in (ours, theirs))
        n = old.shape[0]
        same = a.shape == b.shape and torch.equal(a[:n], b[:n])
        far = (a[n:].float() - b[n:].float()).abs()
        bound = 5 * 1e-9 ** 0.5 * b[:n].float().std(0) * (2 if args.init == "noise" else 1) + b[n:].float().abs() * 2.0 ** -8 + 1e-7
        good = good and same and bool((far <= bound).all())
        print(f"{name}: {tuple(a.shape)}, old rows equal: {same}, largest difference of new rows {far.max().item() if far.numel() else 0:.3g}")
    ids = torch.tensor([tok.encode(TEXTS[0] * 8)])
    with torch.no_grad():
        losses = [m(ids, labels=ids).loss.item() for m in (ours, theirs)]
    print(f"loss {losses[0]:.6f}, of transformers {losses[1]:.6f}")
    return 0 if good and abs(losses[0] - losses[1]) < 2e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
