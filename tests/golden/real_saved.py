"""Compares the folders that Lathe saves of a bf16 model with those of transformers.

    python tests/golden/real_saved.py MODEL LATHE

MODEL  a Hugging Face folder of a causal language model in bf16, in one file, with its tokenizer
LATHE  the command

Printed, one line each:
  unchanged  a run at learning rate 0 saves model.safetensors and config.json byte for byte
  shards     after a step of full training: transformers loads the folder, which is in files of at most 0.1 GB, in
             bf16, and save_pretrained of those weights with the same limit writes the same files, byte for byte
  frozen     a run that trains the norms alone saves every other tensor byte for byte

Exits with 1 when something differs, 2 when it cannot run. Needs torch, transformers and safetensors.
"""
import argparse
import filecmp
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def train(args, work, name, *settings):
    """The model folder that a run of a step wrote."""
    run = work / f"{name}.toml"
    run.write_text(f"""[model]
path = "{pathlib.Path(args.model).resolve()}"
[data]
datasets = [{{ path = "{ROOT / 'docs' / 'checkpoints.md'}", type = "text" }}]
cache_dir = "{work / 'cache'}"
seq_len = 64
[stage]
name = "pretrain"
[adapter]
name = "full"
[optimizer]
name = "adamw"
lr = 1e-4
[train]
precision = "bf16"
micro_batch_size = 1
max_steps = 1
[checkpoint]
dir = "{work / name}"
[log]
level = "warn"
progress = "off"
""")
    command = [args.lathe, "train", str(run), *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return work / name / "step-00000001"


def unchanged(args, work):
    saved = train(args, work, "unchanged", "--optimizer.lr", "0.0", "--optimizer.weight_decay", "0.0")
    model = pathlib.Path(args.model)
    names = ["model.safetensors", "config.json"]
    other = [n for n in names if not (saved / n).is_file() or not filecmp.cmp(saved / n, model / n, shallow=False)]
    size = (saved / names[0]).stat().st_size if (saved / names[0]).is_file() else 0
    print(f"unchanged {'equal' if not other else 'DIFFERS in ' + ', '.join(other)}: {' and '.join(names)} of a run at "
          f"rate 0, {size} bytes", flush=True)
    return not other


def shards(args, work):
    import torch
    from transformers import AutoModelForCausalLM
    saved = train(args, work, "shards", "--checkpoint.shard_size", "0.1", "--optimizer.lr", "1e-3")
    model, loading = AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True)
    missing = [str(v) for v in loading.values() if v]
    dtypes = {p.dtype for p in model.parameters()}
    # A model that was loaded is saved in the order of names, one that was made in the order of its modules, as Lathe does.
    made = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    made.load_state_dict(model.state_dict())
    made.save_pretrained(work / "theirs", max_shard_size="100MB")
    names = sorted(p.name for p in (work / "theirs").glob("model*"))
    ours = sorted(p.name for p in saved.glob("model*"))
    other = [n for n in names if n not in ours or not filecmp.cmp(saved / n, work / "theirs" / n, shallow=False)]
    good = names == ours and not other and not missing and dtypes == {torch.bfloat16}
    print(f"shards    {'equal' if good else 'DIFFER'}: {len(ours) - 1} files and an index, read in "
          f"{', '.join(sorted(str(d) for d in dtypes))}"
          + (f"; transformers misses or does not expect {'; '.join(missing)}" if missing else "")
          + (f"; other bytes than transformers' in {', '.join(other) or set(names) ^ set(ours)}"
             if other or names != ours else ""), flush=True)
    return good


def frozen(args, work):
    from safetensors import safe_open
    patterns = "['*proj*', '*embed*']"
    saved = train(args, work, "frozen", "--adapter.no_train", patterns, "--optimizer.lr", "1e-2")
    n_same, n_other = 0, 0
    with safe_open(pathlib.Path(args.model) / "model.safetensors", "pt") as want, \
            safe_open(saved / "model.safetensors", "pt") as got:
        for name in want.keys():
            a, b = want.get_tensor(name), got.get_tensor(name)
            same = a.dtype == b.dtype and bool((a == b).all())
            n_same += same
            n_other += not same
            if not same and "norm" not in name:
                print(f"frozen    DIFFERS: {name}")
                return False
    print(f"frozen    {'equal' if n_other else 'DIFFERS: nothing trained'}: {n_same} tensors that do not train; {n_other} "
          f"norms that do", flush=True)
    return n_other > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("lathe")
    args = parser.parse_args()
    try:
        import safetensors  # noqa: F401
        from transformers.utils import logging
    except ImportError as e:
        print(f"{e}: this check needs torch, transformers and safetensors", file=sys.stderr)
        return 2
    logging.disable_progress_bar()
    good = True
    for check in (unchanged, shards, frozen):
        with tempfile.TemporaryDirectory() as work:
            good = check(args, pathlib.Path(work)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
