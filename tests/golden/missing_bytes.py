"""Byte-level vocabularies that lack bytes, as SmolLM2's, GPT-NeoX's, StarCoder's and Falcon's do.

data/missing_bytes.json, a list of
    name    what the file has
    file    the text of a tokenizer.json
    texts   what is encoded
    ids, decoded   of encode(texts[i]), and decode of those ids with special tokens

Made with tokenizers 0.23.3:  python tests/golden/missing_bytes.py
"""
import json
import pathlib
import random

from tokenizers import Tokenizer, pre_tokenizers

OUT = pathlib.Path(__file__).parent / "data" / "missing_bytes.json"

LACKED = set(range(0x01, 0x09)) | {0x13, 0xc0, 0xc1, 0xf1} | set(range(0xf5, 0x100))
MERGES = ["a b", "ab a", "Ġ a", "Ġa b", "Ã ©", "a a", "aa aa"]


def byte_chars():
    """GPT-2's character for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    chars = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(0x100 + len(chars) - len(plain))
    return chars


def byte_level(prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}


FALCON = {"type": "Sequence", "pretokenizers": [
    {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), {"type": "Digits", "individual_digits": False},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]}


def file(name, pre, normalizer=None, unk=None, fallback=False, **flags):
    chars = byte_chars()
    assert set(chars.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    vocab = {}
    for word in [chars[b] for b in range(256) if b not in LACKED] + [m.replace(" ", "") for m in MERGES] + ["aĂb"]:
        vocab.setdefault(word, len(vocab))
    if unk:
        vocab[unk] = len(vocab)
    for b in range(256) if fallback else ():
        if b != 0xb1:  # U+00F1, which stands for the byte 0xf1, is c3 b1
            vocab[f"<0x{b:02X}>"] = len(vocab)
    added = {"id": len(vocab), "content": "<\u0004>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
    return name, json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": None, "decoder": byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": unk, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "byte_fallback": fallback, **flags, "vocab": vocab, "merges": MERGES}}, ensure_ascii=False)


def main():
    rng = random.Random(4)
    texts = ["", "abab", "a\u0001b", "aa\u0001aa", "\u0001", "\u0001\u0002\u0003", "ab \u0013ab", "<\u0004>", "a<\u0004>\u0004b", "ñéÿ\u00e9",
             "\U00040000x\U0007ffff", "aa" * 30 + "\u0005" + "aa" * 30, "\u0006" * 60, "ab" + "\u0007" * 60 + "a", "12\u0008345", "a, \u0002b!"]
    texts += ["".join(rng.choice("aab \u0001\u0013\u00e9\U00050000<\u0004>1") for _ in range(rng.randint(1, 40))) for _ in range(14)]
    files = [
        file("short route", byte_level()),
        file("short route, NFC, ignore_merges", byte_level(), {"type": "NFC"}, ignore_merges=True),
        file("unk_token", byte_level(), unk="<unk>", fuse_unk=False),
        file("unk_token, fuse_unk", byte_level(), unk="<unk>", fuse_unk=True),
        file("byte_fallback", byte_level(), fallback=True),
        file("byte_fallback, unk_token, fuse_unk", byte_level(), unk="<unk>", fallback=True, fuse_unk=True),
        file("Falcon's pre-tokenizers", FALCON),
        file("Falcon's pre-tokenizers, unk_token", FALCON, unk="<unk>"),
        file("normalizer ByteLevel", None, {"type": "ByteLevel"}),
    ]
    out = []
    for name, text in files:
        tok = Tokenizer.from_str(text)
        ids = [tok.encode(t).ids for t in texts]
        decoded = [tok.decode(i, skip_special_tokens=False) for i in ids]
        out.append({"name": name, "file": text, "texts": texts, "ids": ids, "decoded": decoded})
    with open(OUT, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o, separators=(",", ":")) for o in out) + "\n]\n")
    print(len(out), "files")


if __name__ == "__main__":
    main()
