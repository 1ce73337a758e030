"""Six tokenizer files of all model types, and what Hugging Face tokenizers makes of 200,000 lines.

data/tokenizer_equality/source.json  what lines are made of: fragments, and ranges of characters
data/tokenizer_equality/NAME.json    the tokenizers, trained on other lines of the same maker:
    gpt2      byte-level BPE, GPT-2's pre-tokenizer
    llama3    byte-level BPE, Llama 3's pre-tokenizer, ignore_merges, a template
    qwen2     byte-level BPE, Qwen2's pre-tokenizer, NFC
    llama2    SentencePiece BPE: Prepend and Replace, byte fallback, fused unk, no pre-tokenizer
    unigram   Unigram: NFKC, Replace by a regular expression, Metaspace "always", a template
    odd       BPE behind Metaspace "first", unk not fused, NFD, no accents, lower case; added tokens of
              every flag
data/tokenizer_equality/hashes.json  per block of 1,000 lines the first 12 digits of SHA-256 of
    ids: encode(line) with special tokens, as int32 little-endian, -1 behind each line
    kept, skipped: decode of those ids with and without special tokens, a newline behind each
    and "round": how many lines decode(encode(line, no special tokens)) gives back

Lines are made by line(seed, i) below; tests/core/tokenizer/encode/test_tokenizer_equality.c has the same in C.
Made with tokenizers 0.23.3:  python tests/golden/tokenizer_equality.py
"""
import hashlib
import json
import pathlib
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

OUT = pathlib.Path(__file__).parent / "data" / "tokenizer_equality"
CORPUS = pathlib.Path(__file__).parent / "data" / "tokenizer" / "corpus.txt"
LINES, BLOCK = 200000, 1000

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# Words and snippets; what matters is that every rule has something to bite on.
FRAGMENTS = """the and of to a in is that tool work shaft turns surface thread oil Hello World don't we'll I'M they've
it's 'tis o'clock isn't You'd straße Größe ÜBUNG naïve café cafe\u0301 e\u0301te\u0301 mañana İstanbul ǅ ﬁne ﬀ Ⅷ № ℃ Å Å ½ ²
x² ①② ㈱ ｶﾞｷﾞ Ａｂｃ ａｂｃ １２３ станок деталь Мастер Ёлка ёлка ελληνικά Ὀδυσσεύς ᾳ שלום בְּרֵאשִׁית مرحبا العربية ﷺ
हिन्दी क्षि क़ नमस्ते தமிழ் ไทย สวัสดี ກຂ ქართული Հայերեն አማርኛ 車床 轉動 工件 中文，。 旋盤 は刃物 カタカナ が か\u3099 선반 공작물 각 ᄀ\u1161\u11a8
tiếng Việt Tiê\u0301ng 😀 👍🏽 👨\u200d👩\u200d👧 🇩🇪 🇫🇷 ❤\ufe0f 1\ufe0f\u20e3 🏴\U000e0067\U000e0062\U000e007f a\u0315\u0300\u05ae\u0300 Z͑ͫ̓a̴l̷g̸o
int for(i=0;i<n;i++){ return x->y[i]; } /*c*/ // #include <stdio.h> def f(x): self.x print("a\\n") a+b==c !=
<div> </div> {{}} [[0]] $x @y %z ^w &amp; | ~ ` '' "" ... --- === *** !!! ??? ,,, ;;; ::: ( ) [ ] { } < > / \\
http://a.b/c?d=e&f=g a@b.co 3.14159 1,000,000 0x1F 1e-9 12:34:56 2024-02-29 -1 +2 50% $9.99 v1.2.3
<s> </s> <unk> <|endoftext|> <|begin_of_text|> <|eot|> <mask> <left> <right> <both> <one> word wordword _word DAY Day day caf
<0x41> <0xZZ> ▁ ▁▁ ▁the Ġ Ċ _ __ \u00ad \ufeff \u200b \u200c \u200d \u2060 \u00a0 \u3000 \u2003 \u2028 \u180e \u0085""".split()
FRAGMENTS += [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u0001", "\u001f", "\u007f", "\u0080", "\ufffd", "\uffff",
              "\U0010ffff", "\ue000", " the", " of", "The ", " 's"]
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (1, 0x1f), (0x7f, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x391, 0x3a1), (0x3b1, 0x3c9),
          (0x400, 0x45f), (0x5d0, 0x5ea), (0x591, 0x5bd), (0x620, 0x652), (0x660, 0x669), (0x904, 0x94d), (0x985, 0x98c),
          (0xe01, 0xe3a), (0xf40, 0xf47), (0xf71, 0xf84), (0x1100, 0x1112), (0x1161, 0x1175), (0x11a8, 0x11c2), (0x1e00, 0x1eff),
          (0x1f00, 0x1f15), (0x2000, 0x200f), (0x2010, 0x2027), (0x2028, 0x202f), (0x2070, 0x2071), (0x2100, 0x214f),
          (0x2150, 0x2189), (0x2190, 0x22ff), (0x2460, 0x24ff), (0x2500, 0x257f), (0x3000, 0x303f), (0x3041, 0x3096),
          (0x3099, 0x30ff), (0x3131, 0x318e), (0x3200, 0x321e), (0x3300, 0x3357), (0x4e00, 0x9fcc), (0xac00, 0xd7a3),
          (0xe000, 0xe00f), (0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xfb50, 0xfbb1), (0xfe70, 0xfe74), (0xff01, 0xff9f),
          (0xfff9, 0xfffd), (0x10330, 0x1034a), (0x1d400, 0x1d454), (0x1f1e6, 0x1f1ff), (0x1f300, 0x1f64f), (0x20000, 0x2003f),
          (0x2f800, 0x2f82f), (0xe0020, 0xe007f)]
MASK = (1 << 64) - 1


class Maker:
    """SplitMix64 (Steele, Lea, Flood 2014), seeded by the line's number."""

    def __init__(self, seed, i):
        self.state = (seed * 0xD1342543DE82EF95 + i) & MASK

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return (z ^ z >> 31) % n


def part(m):
    kind = m.below(16)
    if kind < 7:
        return FRAGMENTS[m.below(len(FRAGMENTS))]
    if kind < 11:
        return " " + FRAGMENTS[m.below(len(FRAGMENTS))]
    if kind < 13:
        first, last = RANGES[m.below(len(RANGES))]
        return chr(first + m.below(last - first + 1))
    if kind == 13:
        return str(m.below(10 ** (1 + m.below(9))))
    if kind == 14:
        n = 150 if m.below(40) == 0 else 2 + m.below(7)
        return FRAGMENTS[m.below(len(FRAGMENTS))] * n
    return " " * (1 + m.below(8))


def line(seed, i):
    m = Maker(seed, i)
    return "".join([part(m) for _ in range(1 + m.below(8))])


def corpus():
    return CORPUS.read_text().split("\n\n") + [line(2, i) for i in range(4000)]


def byte_level(tok, specials, size=1500):
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def splits(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return byte_level(t, ["<|endoftext|>"])


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = splits(LLAMA3)
    t = byte_level(t, ["<|begin_of_text|>", "<|endoftext|>"])
    j = json.loads(t.to_str())  # entries that no merge makes: only ignore_merges finds them
    for word in ("ĠHelloWorld", "ĠÐ¼Ð°ÑģÑĤÐµÑĢ", "standing"):
        j["model"]["vocab"].setdefault(word, len(j["model"]["vocab"]))
    t = Tokenizer.from_str(json.dumps(j))
    t.add_special_tokens(["<|eot|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    return t


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = splits(QWEN2)
    return byte_level(t, ["<|endoftext|>", "<|eot|>"])


def rebuilt(t, change):
    j = json.loads(t.to_str())
    change(j)
    return Tokenizer.from_str(json.dumps(j))


def llama2():
    """Trained on words, as SentencePiece does, and then used without a pre-tokenizer."""
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1500, special_tokens=specials, show_progress=False,
                                                        limit_alphabet=160))
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return rebuilt(t, lambda j: j.update(added_tokens=j["added_tokens"][:3]))


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    # Half of the rare characters out of the vocabulary, so that the unknown token is met.
    def change(j):
        v = j["model"]["vocab"]
        j["model"]["vocab"] = [e for k, e in enumerate(v) if len(e[0]) > 1 or k < 900 or k % 2]
    t = rebuilt(t, lambda j: (change(j), j.update(added_tokens=[a for a in j["added_tokens"] if a["content"] != "<mask>"])))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return t


def odd():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1200, special_tokens=["<unk>", "<s>", "</s>"],
                                                        show_progress=False, limit_alphabet=300))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<left>", lstrip=True, normalized=True),
                          AddedToken("<right>", rstrip=True), AddedToken("Day", normalized=True)])
    t.add_tokens([AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("<one>", single_word=True),
                  AddedToken("word", single_word=True), AddedToken("Caf\u00e9"), AddedToken("...", normalized=False),
                  AddedToken("::", normalized=False, rstrip=True), AddedToken("車床", single_word=True, normalized=False),
                  AddedToken("  ", normalized=False, lstrip=True, rstrip=True)])
    return t


def digits(data):
    return hashlib.sha256(data).hexdigest()[:12]


def hashes(t, lines):
    out = {"ids": [], "kept": [], "skipped": [], "round": 0}
    for at in range(0, LINES, BLOCK):
        block = lines[at:at + BLOCK]
        ids = [e.ids for e in t.encode_batch(block)]
        bare = [e.ids for e in t.encode_batch(block, add_special_tokens=False)]
        out["ids"].append(digits(b"".join(struct.pack(f"<{len(i) + 1}i", *i, -1) for i in ids)))
        for key, skip in (("kept", False), ("skipped", True)):
            out[key].append(digits("".join(s + "\n" for s in t.decode_batch(ids, skip_special_tokens=skip)).encode()))
        back = t.decode_batch(bare, skip_special_tokens=False)
        out["round"] += sum(a == b for a, b in zip(block, back))
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "source.json", "w") as f:
        json.dump({"fragments": FRAGMENTS, "ranges": RANGES}, f, separators=(",", ":"))
        f.write("\n")
    lines = [line(1, i) for i in range(LINES)]
    result = {"lines": LINES, "block": BLOCK, "text": digits("".join(s + "\n" for s in lines).encode())}
    for make in (gpt2, llama3, qwen2, llama2, unigram, odd):
        name = make.__name__
        t = make()
        t.save(str(OUT / f"{name}.json"), pretty=False)
        t = Tokenizer.from_file(str(OUT / f"{name}.json"))
        result[name] = hashes(t, lines)
        print(name, t.get_vocab_size(), result[name]["round"], sum(len(e.ids) for e in t.encode_batch(lines[:BLOCK])))
    with open(OUT / "hashes.json", "w") as f:
        json.dump(result, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
