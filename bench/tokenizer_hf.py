"""The other side of the tokenizer row: Hugging Face tokenizers on one thread.

    tokenizer_hf.py make FOLDER [TEXT_FOLDER]   texts and three byte-level BPE vocabularies of 48,000 into FOLDER
    tokenizer_hf.py speed TOKENIZER FILE...     `mb_s FIGURE`: the best of encode and encode_batch, warm or cold

Texts, about 2 MB each at most: plays.txt and maths.txt from TEXT_FOLDER (tinyshakespeare.txt, gsm8k_train.jsonl; left
out where they are not), code.txt of this tree, tongues.txt from the message catalogues of /usr/share in all the
languages there are. huge.json is a vocabulary of 150,000, for the time of loading.
"""
import gettext
import json
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Regex, Tokenizer, __version__, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

MOST = 2_000_000
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def code(root):
    files = sorted(p for part in ("core", "kernels", "plugins", "tests", "bench") for p in (root / part).rglob("*")
                   if p.suffix in (".c", ".h", ".py", ".cu", ".sh") and p.is_file())
    return "\n".join(p.read_text(errors="ignore") for p in files)


def tongues():
    parts, seen = [], set()
    for path in sorted(pathlib.Path("/usr/share").rglob("*.mo")):
        try:
            catalogue = gettext.GNUTranslations(open(path, "rb"))._catalog
        except (OSError, UnicodeError, ValueError, LookupError):
            continue
        texts = [v for v in catalogue.values() if isinstance(v, str) and len(v) > 10 and v not in seen]
        seen.update(texts)
        parts.append("\n".join(texts))
    text = "\n".join(parts)
    if len(text) < MOST:
        return text
    step = len(text) // 200  # some of everything
    return "".join(text[i:i + MOST // 220] for i in range(0, len(text) - step, step))


def texts(root, folder):
    out = {"code": code(root), "tongues": tongues()}
    plays, maths = folder / "tinyshakespeare.txt", folder / "gsm8k_train.jsonl"
    if plays.exists():
        out["plays"] = plays.read_text()
    if maths.exists():
        rows = map(json.loads, maths.read_text().splitlines())
        out["maths"] = "\n\n".join(r["question"] + "\n" + r["answer"] for r in rows)
    return {name: text.encode()[:MOST].decode(errors="ignore") for name, text in out.items() if len(text) > 100_000}


def tokenizer(kind):
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3 if kind == "llama3" else QWEN2), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    return t


def huge(path):
    """A file with a vocabulary of 150,000 whose merges are valid: words grown letter by letter."""
    t = json.loads(tokenizer("qwen2").to_str())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges, state = {c: i for i, c in enumerate(alphabet)}, [], 1
    tokens = list(alphabet)
    while len(tokens) < 150_000:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        left, right = tokens[(state >> 33) % len(tokens)], tokens[(state >> 20) % min(len(tokens), 3000)]
        if left + right in vocab or len(left + right) > 16:
            continue
        vocab[left + right] = len(tokens)
        tokens.append(left + right)
        merges.append([left, right])
    t["model"]["vocab"], t["model"]["merges"] = vocab, merges
    path.write_text(json.dumps(t, ensure_ascii=False, indent=2))


def make(folder, text_folder):
    folder.mkdir(parents=True, exist_ok=True)
    data = texts(pathlib.Path(__file__).resolve().parent.parent, text_folder)
    for name, text in data.items():
        (folder / f"{name}.txt").write_text(text)
    for kind in ("gpt2", "llama3", "qwen2"):
        t = tokenizer(kind)
        trainer = trainers.BpeTrainer(vocab_size=48000, min_frequency=2, special_tokens=["<|endoftext|>"],
                                      show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        t.train_from_iterator(data.values(), trainer)
        t.save(str(folder / f"{kind}.json"))
    huge(folder / "huge.json")


def documents(text):
    """Pieces of some 4 kB that end with a line."""
    out, at = [], 0
    while at < len(text):
        end = text.find("\n", at + 4000)
        end = len(text) if end < 0 else end + 1
        out.append(text[at:end])
        at = end
    return out


def speed(path, files):
    t = Tokenizer.from_file(path)
    whole = [pathlib.Path(f).read_text() for f in files]
    batch = [d for text in whole for d in documents(text)]
    n_bytes = sum(len(text.encode()) for text in whole)
    best = 1e9
    for way in (lambda: [t.encode(text) for text in whole], lambda: t.encode_batch(batch)):
        for _ in range(2):
            begun = time.perf_counter()
            way()
            best = min(best, time.perf_counter() - begun)
    print(f"tokenizers {__version__}\nmb_s {n_bytes / best / 1e6:.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else "."))
    else:
        speed(sys.argv[2], sys.argv[3:])
