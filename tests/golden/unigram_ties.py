"""Unigram vocabularies in which segmentations have equal sums of scores, or sums that differ in the last digit.

data/unigram_ties.json, a list of
    file    the text of a tokenizer.json: Metaspace "always", Unigram
    texts   what is encoded
    ids     of encode(texts[i])
    nearest how many texts would get other ids if every score were the double nearest to its digits

serde_json, with which tokenizers reads its files, rounds some numbers otherwise than to the nearest double, and sums
of such scores decide which of two segmentations wins. Made with tokenizers 0.23.3:
    python tests/golden/unigram_ties.py
"""
import json
import pathlib
import random
import struct

from tokenizers import Tokenizer

OUT = pathlib.Path(__file__).parent / "data" / "unigram_ties.json"


def best(pieces, text, unk):
    """The segmentation in double arithmetic: the first of equals stays."""
    ways = [None] * (len(text) + 1)
    ways[0] = (0.0, None, None)
    for at in range(len(text)):
        single = False
        for end in range(at + 1, len(text) + 1):
            if text[at:end] in pieces:
                score = pieces[text[at:end]][1] + ways[at][0]
                single |= end == at + 1
                if ways[end] is None or score > ways[end][0]:
                    ways[end] = (score, at, pieces[text[at:end]][0])
        if not single:
            score = unk + ways[at][0]
            if ways[at + 1] is None or score > ways[at + 1][0]:
                ways[at + 1] = (score, at, 0)
    ids, at = [], len(text)
    while at:
        _, begin, token = ways[at]
        if not (token == 0 and ids and ids[-1] == 0):
            ids.append(token)
        at = begin
    return ids[::-1]


def file_of(vocab):
    listed = ", ".join(f"[{json.dumps(piece, ensure_ascii=False)}, {score}]" for piece, score in vocab)
    return ('{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", '
            '"prepend_scheme": "always", "split": true}, "decoder": null, "post_processor": null, '
            '"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [' + listed + "]}}")


def float32(x):
    return repr(struct.unpack("f", struct.pack("f", x))[0])


def vocabulary(rng, kind):
    pieces = ["▁"] + ["#" * n for n in range(1, 5)] + ["-" * n for n in (1, 2, 3)] + ["a", "b", "ab", "ba", "aba", "▁a", "▁#", "▁##"]
    step, base = rng.uniform(0.1, 3), rng.uniform(0.1, 9)
    out = [("<unk>", "0.0")]
    for piece in pieces:
        x = -(base + step * len(piece)) if kind % 2 else -step * len(piece)
        out.append((piece, {0: repr, 1: repr, 2: float32, 3: float32, 4: lambda v: str(round(v)), 5: lambda v: f"{v:.20f}",
                            6: lambda v: f"{v:.17e}", 7: lambda v: f"{v:.1f}"}[kind](x)))
    return out


def main():
    rng, out = random.Random(20), []
    texts = ["####", "#####", "#" * 17, "--- ---", "-" * 11, "ababab", "#a#b", "##?##", "", "▁#▁##"]
    texts += ["".join(rng.choice(("#", "-", "a", "b", " ", "é")) * rng.randint(1, 9) for _ in range(rng.randint(1, 7))) for _ in range(40)]
    for kind in range(8):
        for _ in range(400):  # a vocabulary in which the rounding counts, where there is one
            vocab = vocabulary(rng, kind)
            text = file_of(vocab)
            tok = Tokenizer.from_str(text)
            ids = [tok.encode(t).ids for t in texts]
            pieces = {piece: (i, float(score)) for i, (piece, score) in enumerate(vocab)}
            unk = min(score for _, score in pieces.values()) - 10
            other = 0
            for t, want in zip(texts, ids):
                words = [w for w, _ in tok.pre_tokenizer.pre_tokenize_str(t)]
                other += sum((best(pieces, w, unk) for w in words), []) != want
            if other or kind == 4:
                break
        out.append({"file": text, "texts": texts, "ids": ids, "nearest": other})
        print(kind, other)
    with open(OUT, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o, separators=(",", ":")) for o in out) + "\n]\n")


if __name__ == "__main__":
    main()
