"""Compares a model folder's logits and greedy continuations in Lathe with those of transformers, in fp32.

    python tests/golden/real_generate.py MODEL LATHE [--tokens 100] [--only logits|text]

MODEL  a Hugging Face folder of a causal language model, with its tokenizer
LATHE  the command, as built or installed: its library is taken from ../lib beside it

What is compared, and printed as one line each:
  logits   of four texts, through the C API: |got - want| <= 2e-5 * max |want| for every element
  text     of ten chat prompts, through the command: the same text for --tokens greedy tokens
  answer   with a chat model of English: the answer to "What is the capital of France?" has "Paris" in it

Exits with 1 when something differs, 2 when it cannot run. Needs torch and transformers.
"""
import argparse
import ctypes
import os
import subprocess
import sys

TOLERANCE = 2e-5  # of fp32 logits, relative to the largest; see tests/core/model/family/test_golden_models.c
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = [
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a haiku about a lathe.",
    "List three uses of a paper clip.",
    "Translate 'good morning' to Spanish.",
    "What is 17 + 25?",
    "Write a Python function that reverses a string.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Summarize the plot of Cinderella.",
]
TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then it sits down to think about it.",
    "int main(void)\n{\n    return 0;\n}\n",
    "Der Himmel ist blau; 天空是蓝色的; небо голубое.",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24",
]


def chat(question):
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
            "<|im_start|>assistant\n")


class Batch(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("n_rows", ctypes.c_int32), ("row_tokens", ctypes.c_int32),
                ("reserved", ctypes.c_int32)] + [
                    (name, ctypes.POINTER(ctypes.c_int32))
                    for name in ("tokens", "targets", "positions", "doc_start")]


class Forward(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("reserved", ctypes.c_int32), ("loss_sum", ctypes.c_double),
                ("count", ctypes.c_double), ("logits", ctypes.POINTER(ctypes.c_float)),
                ("vocab_size", ctypes.c_int64)]


class Lathe:
    """A run of the library on a model folder, without its tokenizer: the texts come as ids of transformers.

    A fresh LoRA adapter changes no logits, and a run that trains it needs less memory."""

    def __init__(self, command, model, row_tokens):
        path = os.path.join(os.path.dirname(os.path.realpath(command)), "..", "lib", "liblathe.so")
        self.lib = ctypes.CDLL(path)
        self.lib.lathe_last_error.restype = ctypes.c_char_p
        settings = [f"model.path={model}", "train.precision=fp32", "adapter.name=lora", "train.max_steps=1",
                    f"data.seq_len={row_tokens}", "tokenizer.path=bytes", "log.level=warn"]
        texts = (ctypes.c_char_p * len(settings))(*[s.encode() for s in settings])
        self.run = ctypes.c_void_p()
        self.check(self.lib.lathe_run_open(None, len(settings), texts, ctypes.byref(self.run)))

    def check(self, status):
        if status != 0:
            raise SystemExit("lathe: " + self.lib.lathe_last_error().decode())

    def logits(self, ids):
        import torch
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        batch = Batch(size=ctypes.sizeof(Batch), n_rows=1, row_tokens=len(ids), tokens=tokens)
        out = Forward(size=ctypes.sizeof(Forward))
        self.check(self.lib.lathe_forward(self.run, ctypes.byref(batch), 2, ctypes.byref(out)))
        n = len(ids) * out.vocab_size
        rows = torch.frombuffer(ctypes.cast(out.logits, ctypes.POINTER(ctypes.c_float * n)).contents,
                                dtype=torch.float32).clone()
        return rows.view(len(ids), out.vocab_size)

    def close(self):
        self.lib.lathe_run_close(self.run)


def compare_logits(model, tokenizer, args):
    import torch
    rows = [tokenizer(text).input_ids[:64] for text in TEXTS]
    run = Lathe(args.lathe, args.model, max(map(len, rows)))
    worst = 0.0
    for ids in rows:
        with torch.no_grad():
            want = model(torch.tensor([ids])).logits[0].float()
        got = run.logits(ids)
        error = (got - want).abs().max() / want.abs().max()
        worst = float("inf") if torch.isnan(error) else max(worst, error.item())
    run.close()
    good = worst <= TOLERANCE
    print(f"logits   {'equal' if good else 'DIFFER'}: {len(rows)} texts, {sum(map(len, rows))} tokens, "
          f"largest difference {worst:.2g} of the largest logit, {TOLERANCE:g} allowed", flush=True)
    return good


def lathe_text(args, prompt):
    command = [args.lathe, "generate", args.model, "--prompt", prompt, "--temperature", "0",
               "--max-new-tokens", str(args.tokens), "--train.precision", "fp32"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode(errors="replace").strip())
    return done.stdout[len(prompt.encode()):-1]  # the prompt comes first, a newline last


def compare_text(model, tokenizer, args):
    import torch
    n_same, n_tokens, answer = 0, 0, b""
    for question in QUESTIONS:
        prompt = chat(question)
        ids = torch.tensor([tokenizer(prompt).input_ids])
        with torch.no_grad():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=args.tokens)[0, ids.shape[1]:]
        want = tokenizer.decode(made, skip_special_tokens=True, clean_up_tokenization_spaces=False).encode()
        got = lathe_text(args, prompt)
        answer = answer or got
        n_tokens += len(made)
        if got == want:
            n_same += 1
        else:
            print(f"text     DIFFERS for {question!r}:\n  want {want!r}\n  got  {got!r}")
    good = n_same == len(QUESTIONS)
    print(f"text     {'equal' if good else 'DIFFERS'}: {n_same} of {len(QUESTIONS)} chat prompts, "
          f"{n_tokens} greedy tokens")
    has_paris = b"Paris" in answer
    print(f"answer   {'right' if has_paris else 'WRONG'}: {QUESTIONS[0]} {answer.decode(errors='replace')}",
          flush=True)
    return good and has_paris


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("lathe")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--only", choices=["logits", "text"])
    args = parser.parse_args()
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as e:
        print(f"{e}: this check needs torch and transformers", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    good = True
    if args.only != "text":
        good = compare_logits(model, tokenizer, args) and good
    if args.only != "logits":
        good = compare_text(model, tokenizer, args) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
