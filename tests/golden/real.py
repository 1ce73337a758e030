"""The whole way of a real model, against transformers and PEFT: tokenizer, logits, text, LoRA, save, load.

    python tests/golden/real.py LATHE [--model MODEL] [--only CHECK,...]

LATHE  the command; MODEL a Hugging Face folder (unset: build-real/model, made by real_model.py when it is not there).
Each check is a script of its own, prints what it measured, and fails when that is not what is allowed. CHECKs:
tokenizer, generate, lora, saved, base. A table ends it; exits with 1 when a check failed. ./dev real calls this.
"""
import argparse
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHECKS = {
    "tokenizer": ("20,000 lines, against transformers", ["--lines", "20000"]),
    "generate": ("fp32 logits, 100 greedy tokens of ten chat prompts, an answer", ["--tokens", "100"]),
    "lora": ("20 steps, against PEFT", ["--steps", "20"]),
    "saved": ("folders in bf16 and in shards, against transformers", []),
    "base": ("a template added to a base model: where answers end, in Lathe and in transformers", []),
}


def run(name, args, more):
    done = subprocess.run([sys.executable, str(HERE / f"real_{name}.py"), str(args.model), str(args.lathe), *more])
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lathe", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(CHECKS))
    args = parser.parse_args()
    wanted = args.only.split(",")
    if not set(wanted) <= set(CHECKS):
        parser.error(f"--only: expected some of {', '.join(CHECKS)}")
    args.lathe = args.lathe.resolve()
    if args.model is None:
        args.model = ROOT / "build-real" / "model"
        if not (args.model / "config.json").is_file():
            print(f"== making {args.model}", flush=True)
            subprocess.run([sys.executable, str(HERE / "real_model.py"), str(args.model)], check=True)
    rows = []
    for name in wanted:
        what, more = CHECKS[name]
        print(f"== {name}: {what}", flush=True)
        begin = time.monotonic()
        good = run(name, args, more)
        rows.append((name, "ok" if good else "FAILED", time.monotonic() - begin))
    print("== result")
    for name, word, seconds in rows:
        print(f"{name:<10} {word:<7} {seconds:6.0f} s")
    return 0 if all(word == "ok" for _, word, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
