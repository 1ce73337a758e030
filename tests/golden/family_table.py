"""Six odd configurations of each family of family_cases/, computed by Lathe and by transformers and PEFT.

    python tests/golden/family_table.py LATHE [FAMILY ...]     exits with 1 when a difference is above its bound

LATHE  the command, as built or installed: its library is taken from ../lib beside it

A tiny model of each configuration gets random weights and is saved by transformers. Then, in fp32, on a batch of 2 rows of 23
tokens and with both attention backends of the CPU (the best one, and `reference`):

  logits    |got - want| <= 2e-5 of the largest
  gradients of every tensor: |got - want| <= 1e-4 of the tensor's largest, or of a hundredth of the largest of all tensors (the
            gradient of a key bias without positions, or of queries that see one key, is nothing but rounding). A step of SGD with lr 1000 from the saved model, whose
            result Lathe writes and transformers' names find
  text      20 greedy tokens after each of three prompts, decoded with Lathe's cache: equal wherever transformers' first token
            leads the second by 1e-4. transformers has no cache here: its own forgets too much with a window of 1, and mixes the
            two lists of longrope
  LoRA      rank 2 on all linear layers: an adapter that PEFT wrote, with random A and B. Logits, and the gradients of every A and
            B, by PEFT's names, with the bounds above
  merged    logits of the folder that `lathe merge` writes, loaded by transformers, against those of PEFT's merge_and_unload

The table has the largest difference of each as a share of its bound. Used with torch 2.15.0, transformers 5.24, peft 0.21.2.
"""
import argparse
import copy
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
from families import linear_layers
from family_cases import attention_of, each_file_tensor, families
from peft import LoraConfig, get_peft_model
from real_generate import Batch, Forward
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity(50)
logging.disable_progress_bar()
B, T, NEW, LR = 2, 23, 20, 1000.0
LOGITS, GRADIENT, LEAD = 2e-5, 1e-4, 1e-4
PROMPTS = [[(i * 37 + 11) % 61 + 3 for i in range(n)] for n in (1, 9, 24)]
COLUMNS = ["logits", "gradients", "text", "LoRA logits", "LoRA gradients", "merged"]


class Prompt(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("n_tokens", ctypes.c_int32), ("tokens", ctypes.POINTER(ctypes.c_int32)),
                ("text", ctypes.c_char_p), ("seed", ctypes.c_uint64)]


class Run:
    """A run of the library on a model folder, with batches of the caller."""

    def __init__(self, lathe, *settings):
        self.lib = ctypes.CDLL(str(lathe.parent.parent / "lib" / "liblathe.so"))
        self.lib.lathe_last_error.restype = ctypes.c_char_p
        settings = ["train.precision=fp32", "train.max_steps=1", "optimizer.name=sgd", f"optimizer.lr={LR}", "train.max_grad_norm=0",
                    "scheduler.name=constant", f"train.micro_batch_size={B}", f"data.seq_len={T}", "tokenizer.path=bytes",
                    "train.threads=1", "log.level=error", *settings]
        texts = (ctypes.c_char_p * len(settings))(*[s.encode() for s in settings])
        self.run = ctypes.c_void_p()
        self.check(self.lib.lathe_run_open(None, len(settings), texts, ctypes.byref(self.run)))

    def check(self, status):
        if status != 0:
            raise RuntimeError("lathe: " + self.lib.lathe_last_error().decode())

    def forward(self, ids, flags):
        array = ctypes.c_int32 * ids.numel()
        targets = [t for row in ids.tolist() for t in row[1:] + [-1]]
        batch = Batch(size=ctypes.sizeof(Batch), n_rows=ids.shape[0], row_tokens=ids.shape[1], tokens=array(*ids.flatten().tolist()),
                      targets=array(*targets))
        out = Forward(size=ctypes.sizeof(Forward))
        self.check(self.lib.lathe_forward(self.run, ctypes.byref(batch), flags, ctypes.byref(out)))
        return out

    def logits(self, ids):
        out = self.forward(ids, 2)
        n = ids.numel() * out.vocab_size
        rows = torch.frombuffer(ctypes.cast(out.logits, ctypes.POINTER(ctypes.c_float * n)).contents, dtype=torch.float32)
        return rows.clone().view(*ids.shape, out.vocab_size)

    def step(self, ids, folder):
        """Takes a step on the batch and saves the model."""
        self.forward(ids, 1)
        self.check(self.lib.lathe_backward(self.run, None))
        self.check(self.lib.lathe_step(self.run, (ctypes.c_uint32 * 16)(64)))
        self.check(self.lib.lathe_save(self.run, str(folder).encode()))

    def close(self):
        self.lib.lathe_run_close(self.run)


def randomize(model, seed):
    """Weights large enough that every term of the forward shows in the logits."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            p.copy_(p + 0.1 * r if p.dim() < 2 else r * (0.5 if "embed" in name or "wte" in name else 0.15))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.2 * torch.randn(b.shape, generator=g))


def load(folder):
    attention = attention_of(AutoConfig.from_pretrained(folder).model_type)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
    model.config._experts_implementation = "eager"  # torch's grouped product takes no odd widths
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def share(got, want, bound, least=1e-12):
    """The largest difference, in units of what is allowed."""
    if got is None or got.shape != want.shape or not torch.isfinite(got).all():
        return float("inf")
    return ((got - want).abs().max() / (bound * want.abs().max().clamp(min=least))).item()


def by_transformers(model, ids):
    """Logits, and the gradient of every parameter by its name in files."""
    out = model(input_ids=ids, labels=ids, use_cache=False)
    model.zero_grad()
    out.loss.backward()
    kind = model.config.model_type
    return out.logits.detach(), {key: grad for n, p in model.named_parameters() if p.grad is not None
                                 for key, grad in each_file_tensor(kind, n, p.grad)}


def gradients(start, end):
    """From the step: -(end - start) / lr. Both hold tensors by name; a tied head stands once."""
    return {n: (start[n].float() - end[n].float()) / LR for n in end}


def largest(got, want, allowed_names=None):
    worst = 0.0
    if allowed_names is not None and set(got) != allowed_names:
        return float("inf")
    least = 0.01 * max(value.abs().max().item() for value in want.values())
    for name, value in want.items():
        worst = max(worst, share(got.get(name), value, GRADIENT, least))
    return worst


def text_of(lathe, folder, backend):
    """The new tokens of each prompt, decoded with the cache."""
    requests, out = folder.parent / "in.jsonl", folder.parent / "out.jsonl"
    requests.write_text("".join(json.dumps({"ids": p}) + "\n" for p in PROMPTS))
    command = [lathe, "generate", folder, "--prompts", requests, "-o", out, "--temperature", "0", "--max-new-tokens", str(NEW),
               "--ignore-eos", "--logprobs", "--train.precision", "fp32", "--train.threads", "1", "--tokenizer.path", "bytes", "--attention.name",
               backend]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return [json.loads(line)["ids"] for line in out.read_text().splitlines()]


def texts_agree(model, got):
    for prompt, mine in zip(PROMPTS, got):
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, use_cache=False,
                             return_dict_in_generate=True, output_logits=True)
        want = out.sequences[0, ids.shape[1]:].tolist()
        two = torch.cat(out.logits).topk(2).values
        for i in range(NEW):
            if two[i, 0] - two[i, 1] < LEAD:
                break  # rounding decides from here on
            if mine[i] != want[i]:
                return False
    return len(got) == len(PROMPTS)


def lora_case(lathe, folder, ids, backend, seed):
    """LoRA logits, LoRA gradients, merged logits."""
    base = load(folder)
    targets = linear_layers(base) if hasattr(base.config, "num_experts_per_tok") else "all-linear"
    model = get_peft_model(base, LoraConfig(r=2, lora_alpha=3, target_modules=targets, task_type="CAUSAL_LM")).eval()
    g = torch.Generator().manual_seed(seed)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for p in trained.values():
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
    model.peft_config["default"].base_model_name_or_path = str(folder)
    adapter, after, merged = folder.parent / "adapter", folder.parent / f"after_{backend}", folder.parent / f"merged_{backend}"
    model.save_pretrained(adapter)
    logits, grads = by_transformers(model, ids)
    grads = {n.replace(".default.", "."): v for n, v in grads.items()}
    run = Run(lathe, f"model.path={folder}", f"model.adapter={adapter}", f"attention.name={backend}")
    of_logits = share(run.logits(ids), logits, LOGITS)
    run.step(ids, after)
    run.close()
    start, end = load_file(adapter / "adapter_model.safetensors"), load_file(after / "adapter_model.safetensors")
    of_gradients = largest(gradients(start, end), grads, set(start))
    done = subprocess.run([str(lathe), "merge", str(folder), str(adapter), "-o", str(merged)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    with torch.no_grad():
        want = model.merge_and_unload()(input_ids=ids, use_cache=False).logits
        got = load(merged)(input_ids=ids, use_cache=False).logits
    return of_logits, of_gradients, share(got, want, LOGITS)


def case(lathe, module, keys, seed):
    """The largest share of each column over both backends."""
    # a copy: transformers adds keys to the rotary settings that it is given, which other configurations share
    config = AutoConfig.for_model(module.TYPE, **copy.deepcopy({"pad_token_id": None, **keys}))
    made = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention_of(module.TYPE))
    randomize(made, seed)
    worst = [0.0] * len(COLUMNS)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "model"
        made.save_pretrained(folder)
        config.save_pretrained(folder)  # that of internlm3 is saved with the model as one of llama
        (folder / "generation_config.json").unlink(missing_ok=True)
        model = load(folder)
        ids = torch.randint(0, config.vocab_size, (B, T), generator=torch.Generator().manual_seed(seed + 1))
        logits, grads = by_transformers(model, ids)
        for backend in ("auto", "reference"):
            run = Run(lathe, f"model.path={folder}", f"attention.name={backend}")
            row = [share(run.logits(ids), logits, LOGITS)]
            run.step(ids, pathlib.Path(work) / f"step_{backend}")
            run.close()
            start, end = (load_file(p / "model.safetensors") for p in (folder, pathlib.Path(work) / f"step_{backend}"))
            row.append(largest(gradients(start, end), grads_in_files(module, grads), set(start)))
            kept = [n for n in start if n.endswith("e_score_correction_bias")]
            if not all(torch.equal(start[n], end[n]) for n in kept):
                row[-1] = float("inf")  # it has no gradient
            row.append(0.0 if texts_agree(model, text_of(lathe, folder, backend)) else float("inf"))
            row += lora_case(lathe, folder, ids, backend, seed + 2)
            worst = [max(a, b) for a, b in zip(worst, row)]
    return worst


def grads_in_files(module, grads):
    """By the names of files, where they are others than in the class."""
    return {getattr(module, "FILE_NAMES", {}).get(n, n): v for n, v in grads.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lathe", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lathe, bad, every = args.lathe.resolve(), 0, families()
    for name in args.families or every:
        assert len(every[name].SIX) == 6, f"{name}: expected six configurations"
        print(f"{name:<62}" + "".join(f"{c:>15}" for c in COLUMNS), flush=True)
        for i, (text, keys) in enumerate(every[name].SIX.items()):
            try:
                worst = case(lathe, every[name], keys, 100 * i + 7)
            except RuntimeError as error:
                print(f"  {text}: {error}", flush=True)
                worst = [float("inf")] * len(COLUMNS)
            bad += max(worst) > 1.0
            cells = ["equal" if c == "text" and x == 0 else "DIFFERS" if x > 1.0 and c == "text" else f"{x:.3f}"
                     for c, x in zip(COLUMNS, worst)]
            print(f"  {text:<60}" + "".join(f"{c:>15}" for c in cells) + ("  ABOVE" if max(worst) > 1.0 else ""), flush=True)
    print("all within their bounds" if bad == 0 else f"{bad} configurations are above a bound")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
