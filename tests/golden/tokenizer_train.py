"""What Hugging Face's BpeTrainer makes of small texts, where ties and limits decide.

data/tokenizer/train.json   [{"text": ..., settings ..., "n_first": tokens before the alphabet's end,
                              "tokens": [by id, from n_first on], "merges": ["left right", ...]}, ...]
                            "text" null stands for data/tokenizer/corpus.txt, one text as a whole

Made with tokenizers 0.23.3:  python tests/golden/tokenizer_train.py
"""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).parent / "data" / "tokenizer"
CORPUS = (OUT / "corpus.txt").read_text()
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def byte_level(text, pattern=None, specials=("<|endoftext|>",), **settings):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **settings)
    t.train_from_iterator([text], trainer)
    return {"kind": "bytes", "pattern": pattern, "specials": list(specials), "n_first": len(specials) + 256,
            **settings}, t


def metaspace(text, byte_fallback=False, specials=("<unk>", "<s>", "</s>"), **settings):
    t = Tokenizer(models.BPE(unk_token=specials[0], fuse_unk=True, byte_fallback=byte_fallback))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    first = list(specials) + (BYTES if byte_fallback else [])
    t.train_from_iterator([text], trainers.BpeTrainer(special_tokens=first, show_progress=False, **settings))
    return {"kind": "metaspace", "byte_fallback": byte_fallback, "specials": list(specials), "n_first": len(first),
            **settings}, t


def letters(alphabet, n, seed):
    rng = random.Random(seed)
    return "".join(rng.choice(alphabet) for _ in range(n))


def main():
    cases = []

    def add(make, text, **settings):
        described, t = make(CORPUS if text is None else text, **settings)
        model = json.loads(t.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        merges = [" ".join(m) for m in model["merges"]]
        assert merges and all(m.count(" ") == 1 for m in merges)
        cases.append({"text": text, **described, "tokens": tokens[described["n_first"]:], "merges": merges})

    add(byte_level, None, vocab_size=500, min_frequency=1)
    add(byte_level, None, vocab_size=5000, min_frequency=4, pattern=QWEN2)
    add(byte_level, None, vocab_size=450, min_frequency=2, max_token_length=5)
    add(byte_level, None, vocab_size=400, min_frequency=2, pattern=r"[a-z]+|\s+(?!\S)|[^\s]", specials=["in", "<x>", "the"])
    add(byte_level, letters("ab", 1500, 1), vocab_size=400, min_frequency=1, pattern=".{1,7}")
    add(byte_level, letters("aab ", 2000, 2), vocab_size=420, min_frequency=2)
    add(byte_level, letters("aab ", 2000, 3), vocab_size=420, min_frequency=1, max_token_length=3)
    add(byte_level, letters(["a", "\u00e9", "\u8eca", " "], 600, 4), vocab_size=400, min_frequency=1, pattern="[^ ]+",
        max_token_length=6)
    add(byte_level, "a" * 1000 + " " + "a" * 77, vocab_size=300, min_frequency=1)
    add(metaspace, None, vocab_size=500, min_frequency=1)
    add(metaspace, None, vocab_size=600, min_frequency=2, byte_fallback=True)
    add(metaspace, None, vocab_size=400, min_frequency=3, max_token_length=4, specials=["<unk>", "<bos>", "<eos>", "th", "e"])
    add(metaspace, letters("aab  ", 2000, 5), vocab_size=200, min_frequency=1)
    add(metaspace, "  two  spaces \u2581mark\u2581\u2581s \n" + letters(["a", "\u00e9", "\u8eca", " ", "\u2581"], 500, 6) + "  ",
        vocab_size=200, min_frequency=1)
    with open(OUT / "train.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    for c in cases:
        print(c["kind"], c["vocab_size"], len(c["tokens"]), len(c["merges"]))


if __name__ == "__main__":
    main()
