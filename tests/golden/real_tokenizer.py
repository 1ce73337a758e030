"""Compares a real tokenizer in Lathe and in transformers: ids and decoded text, line by line.

    python tests/golden/real_tokenizer.py MODEL_DIR LATHE [--lines 20000] [--seed 1] [TEXT...]

MODEL_DIR holds tokenizer.json; LATHE is the program. TEXT are files and folders with more real text (.txt, .md,
.c, .h, .py, .jsonl: the strings of its objects). Lines are a fifth of each: lines of TEXT and of these sources,
the same lines joined over line ends, fragments of many scripts glued at random, random characters of all of
Unicode, and random bytes read as UTF-8 with replacement. Exit code 0: no line differs.
Needs transformers; prints the first lines that differ.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tokenizer_equality import line as glued_line

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".txt", ".md", ".c", ".h", ".py", ".json", ".jsonl", ".toml", ".cu"}


def load(folder):
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError):  # a folder without config.json
        return PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(folder) / "tokenizer.json"))


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def real_texts(paths):
    """Texts of one to a few lines."""
    for path in paths:
        path = pathlib.Path(path)
        files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and "build" not in p.parts) if path.is_dir() else [path]
        for file in files:
            if not file.is_file() or file.stat().st_size > 50_000_000:
                continue
            lines = file.read_text(errors="replace").split("\n")
            if file.suffix == ".jsonl":
                for record in lines:
                    try:
                        yield from strings(json.loads(record))
                    except ValueError:  # a test file that is wrong on purpose
                        yield record
            else:
                yield from lines


def make(paths, n, seed):
    rng = random.Random(seed)
    real = [t for t in real_texts([ROOT / "core", ROOT / "docs", ROOT / "tests" / "golden", *paths]) if t]
    out = rng.sample(real, min(n // 5, len(real)))
    while len(out) < 2 * (n // 5):
        at = rng.randrange(len(real))
        out.append("\n".join(real[at:at + rng.randint(2, 12)])[:4000])
    out += [glued_line(seed, i) for i in range(n // 5)]
    for _ in range(n // 5):
        out.append("".join(chr(c) for c in (rng.choice((rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x110000)))
                                            for _ in range(rng.randint(1, 40))) if not 0xd800 <= c < 0xe000))
    while len(out) < n:
        out.append(rng.randbytes(rng.randint(1, 60)).decode("utf-8", "replace"))
    return out


def lathe(program, command, folder, lines, *options):
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = subprocess.run([program, "tokenizer", command, folder, "--json-lines", *options], input=given, stdout=subprocess.PIPE,
                          check=True)
    return [json.loads(line) for line in done.stdout.split(b"\n")[:-1]]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("lathe")
    args.add_argument("texts", nargs="*")
    args.add_argument("--lines", type=int, default=20000)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    tok = load(args.folder)
    lines = make(args.texts, args.lines, args.seed)
    wrong = 0

    def compare(what, ours, theirs):
        nonlocal wrong
        bad = [i for i in range(len(theirs)) if ours[i] != theirs[i]]
        wrong += len(bad)
        print(f"{what}: {len(theirs)} lines, {len(bad)} differ")
        for i in bad[:5]:
            print(f"  {lines[i]!r}\n    lathe        {ours[i]}\n    transformers {theirs[i]}")

    theirs = [tok.encode(line, add_special_tokens=False) for line in lines]
    ours = lathe(args.lathe, "encode", args.folder, lines)
    compare("ids", ours, theirs)
    compare("ids with special tokens", lathe(args.lathe, "encode", args.folder, lines, "--add-special"),
            [tok.encode(line) for line in lines])
    for skip in (False, True):
        compare("text without special tokens" if skip else "text",
                lathe(args.lathe, "decode", args.folder, theirs, *(["--skip-special"] if skip else [])),
                [tok.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False) for ids in theirs])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
