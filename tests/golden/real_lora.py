"""Compares 20 steps of an adapter (LoRA, DoRA, OFT) on a model folder in Lathe with PEFT's: the same rows of real text, in fp32.

    python tests/golden/real_lora.py MODEL LATHE [--adapter lora] [--set KEY=VALUE]... [--steps 20] [--rows 2] [--tokens 64]

MODEL  a Hugging Face folder of a causal language model, with its tokenizer
LATHE  the command, as built or installed: its library is taken from ../lib beside it

--adapter names the method, whose files PEFT must read; --set gives its settings, instead of rank and alpha.

Lathe makes the adapter and saves it; PEFT loads that folder, so both start from the same A (B is zero) and PEFT
reads what Lathe writes. Then both take the same steps of AdamW on rows cut from this repository's documentation.
Printed, one line each:
  losses   of every step: |got - want| <= 1e-5 * want; 1e-4 in more than 20 steps, over which rounding errors grow
  adapter  all final weights together: |got - want| <= 1 % of |want - start|, by the Euclidean norm. A step of Adam is
           about lr * sign(g) where a gradient is near zero, so single weights may differ by steps, which the norm
           shows and the largest element would not.

Exits with 1 when something differs, 2 when it cannot run. Needs torch, transformers and peft.
"""
import argparse
import ctypes
import pathlib
import sys
import tempfile

from real_generate import Batch, Forward, Lathe

LOSS_TOLERANCE, LONG_LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-5, 1e-4, 1e-2
RANK, ALPHA, LR = 8, 16, 1e-4
TRAIN = 1  # LATHE_FORWARD_TRAIN


def batches(tokenizer, args):
    """[steps][rows][tokens] ids of the documentation, in the order of the files."""
    import torch
    root = pathlib.Path(__file__).resolve().parents[2]
    text = "\n".join(p.read_text() for p in [root / "README.md", *sorted((root / "docs").glob("*.md"))])
    n = args.steps * args.rows * args.tokens
    ids = tokenizer(text[:20 * n]).input_ids[:n]
    assert len(ids) == n, "the documentation is too short"
    return torch.tensor(ids).view(args.steps, args.rows, args.tokens)


class Trainer(Lathe):
    """A run that trains a LoRA adapter on given batches."""

    def __init__(self, args):
        self.lib = ctypes.CDLL(str(pathlib.Path(args.lathe).resolve().parent.parent / "lib" / "liblathe.so"))
        self.lib.lathe_last_error.restype = ctypes.c_char_p
        settings = [f"model.path={args.model}", "train.precision=fp32", f"adapter.name={args.adapter}", f"train.max_steps={args.steps}", "optimizer.name=adamw",
                    f"optimizer.lr={LR}", "optimizer.weight_decay=0.0", "scheduler.name=constant",
                    f"train.micro_batch_size={args.rows}", f"data.seq_len={args.tokens}", "train.max_grad_norm=0",
                    "tokenizer.path=bytes", "log.level=warn"]
        settings += args.set or [f"adapter.r={RANK}", f"adapter.alpha={ALPHA}"]
        texts = (ctypes.c_char_p * len(settings))(*[s.encode() for s in settings])
        self.run = ctypes.c_void_p()
        self.check(self.lib.lathe_run_open(None, len(settings), texts, ctypes.byref(self.run)))

    def step(self, rows):
        """Loss of the rows (each predicts its own next tokens), then one update."""
        tokens = rows.flatten().tolist()
        targets = [t for row in rows.tolist() for t in row[1:] + [-1]]
        array = ctypes.c_int32 * len(tokens)
        batch = Batch(size=ctypes.sizeof(Batch), n_rows=rows.shape[0], row_tokens=rows.shape[1],
                      tokens=array(*tokens), targets=array(*targets))
        out = Forward(size=ctypes.sizeof(Forward))
        self.check(self.lib.lathe_forward(self.run, ctypes.byref(batch), TRAIN, ctypes.byref(out)))
        self.check(self.lib.lathe_backward(self.run, None))
        result = (ctypes.c_uint32 * 16)(64)  # lathe_step_result: 64 bytes, its size first
        self.check(self.lib.lathe_step(self.run, result))
        return out.loss_sum / out.count

    def save(self, folder):
        self.check(self.lib.lathe_save(self.run, str(folder).encode()))


def peft_losses(args, start, data):
    """The losses of PEFT's steps, and its final adapter by the names of the file."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, start, is_trainable=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for rows in data:
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, peft.get_peft_model_state_dict(model)


def compare(args, data, work):
    from safetensors.torch import load_file
    run = Trainer(args)
    run.save(work / "start")
    got = [run.step(rows) for rows in data]
    run.save(work / "end")
    run.close()
    want, want_end = peft_losses(args, work / "start", data)
    start, end = (load_file(work / name / "adapter_model.safetensors") for name in ("start", "end"))
    worst = max(abs(g - w) / w for g, w in zip(got, want))
    allowed = LOSS_TOLERANCE if len(got) <= 20 else LONG_LOSS_TOLERANCE
    good = worst <= allowed
    print(f"losses   {'equal' if good else 'DIFFER'}: {len(got)} steps of {args.adapter}, {want[0]:.6f} to {want[-1]:.6f}, largest "
          f"difference {worst:.2g} of the loss, {allowed:g} allowed", flush=True)
    if set(end) != set(want_end):
        print(f"adapter  DIFFERS: {len(end)} tensors in Lathe's file, {len(want_end)} in PEFT's, not of the same names")
        return False
    off = sum((end[k] - want_end[k]).double().pow(2).sum() for k in end).sqrt()
    moved = sum((want_end[k] - start[k]).double().pow(2).sum() for k in end).sqrt()
    same = bool(moved > 0 and off <= WEIGHT_TOLERANCE * moved)
    print(f"adapter  {'equal' if same else 'DIFFERS'}: {len(end)} tensors, |difference| is {off / moved:.2g} of the way that "
          f"training moved them, {WEIGHT_TOLERANCE:g} allowed", flush=True)
    return good and same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("lathe")
    parser.add_argument("--adapter", default="lora")
    parser.add_argument("--set", action="append", help="a setting of the run file instead of rank and alpha")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    try:
        import peft  # noqa: F401
        from transformers import AutoTokenizer
        from transformers.utils import logging
    except ImportError as e:
        print(f"{e}: this check needs torch, transformers and peft", file=sys.stderr)
        return 2
    logging.disable_progress_bar()
    data = batches(AutoTokenizer.from_pretrained(args.model), args)
    with tempfile.TemporaryDirectory() as work:
        return 0 if compare(args, data, pathlib.Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main())
