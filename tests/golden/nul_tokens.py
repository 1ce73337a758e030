"""tokenizer.json files with U+0000 in every place where text may have it.

data/nul_tokens.json, a list of
    name    what the file has
    file    the text of a tokenizer.json
    texts   what is encoded
    ids, decoded   of encode(texts[i]), and decode of those ids with special tokens

Made with tokenizers 0.23.3:  python tests/golden/nul_tokens.py
"""
import json
import pathlib

from tokenizers import Tokenizer, pre_tokenizers

OUT = pathlib.Path(__file__).parent / "data" / "nul_tokens.json"
TEXTS = ["", "\0", "a\0b", "\0\0\0", "ab\0ab ab", "a<\0>b", "<\0>", " \0 ", "\0a\0", "c\0"]


def added(content, id, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": id, "content": content, **base, **flags}


def file(model, **sections):
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None}
    return json.dumps({**root, **sections, "model": model})


def bpe(words, merges, **flags):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, **flags, "vocab": {w: i for i, w in enumerate(words)}, "merges": merges}


def files():
    words, merges = ["<unk>", "a", "b", "\0", " ", "<", ">", "ab", "\0a", "\0\0"], [["a", "b"], ["\0", "a"], ["\0", "\0"]]
    yield "BPE", file(bpe(words, merges))
    yield "BPE, merges as text", file(bpe(words, [" ".join(m) for m in merges]))
    yield "BPE, added token", file(bpe(words, merges), added_tokens=[added("<\0>", 10, special=True)])
    yield "BPE, added token, normalized", file(bpe(words, merges), normalizer={"type": "Replace", "pattern": {"String": "\0"}, "content": "b"},
                                               added_tokens=[added("<\0>", 10, normalized=True)])
    yield "BPE, unk_token", file(bpe([*words, "?\0"], merges, unk_token="?\0"))
    for how in ("String", "Regex"):
        yield f"Replace {how}", file(bpe(words, merges), normalizer={"type": "Replace", "pattern": {how: "\0"}, "content": "a\0"})
        yield f"Split {how}", file(bpe(words, merges), pre_tokenizer={"type": "Split", "pattern": {how: "a\0"}, "behavior": "Removed",
                                                                      "invert": False})
        yield f"decoder Replace {how}", file(bpe(words, merges), decoder={"type": "Replace", "pattern": {how: "\0"}, "content": "\0-"})
    yield "Split class", file(bpe(words, merges), pre_tokenizer={"type": "Split", "pattern": {"Regex": "[\0b]+"}, "behavior": "Removed",
                                                                  "invert": False})
    yield "Prepend", file(bpe(words, merges), normalizer={"type": "Prepend", "prepend": "\0b"})
    space = {"type": "Metaspace", "replacement": "\0", "prepend_scheme": "always", "split": True}
    yield "Metaspace", file(bpe(words, merges), pre_tokenizer=space, decoder=space)
    yield "Unigram", file({"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [
        ["<unk>", 0.0], ["a", -2.5], ["b", -2.25], ["\0", -3.0], ["ab\0", -4.0], ["\0\0", -3.5], [" ", -2.0]]})
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    yield "byte-level", file(bpe([*letters, "\0", "a\0"], []), pre_tokenizer=level, decoder=level)


def main():
    out = []
    for name, text in files():
        tok = Tokenizer.from_str(text)
        ids = [tok.encode(t).ids for t in TEXTS]
        decoded = [tok.decode(i, skip_special_tokens=False) for i in ids]
        out.append({"name": name, "file": text, "texts": TEXTS, "ids": ids, "decoded": decoded})
    with open(OUT, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o, separators=(",", ":")) for o in out) + "\n]\n")
    print(len(out), "files")


if __name__ == "__main__":
    main()
