"""Every normalizer, pre-tokenizer, decoder, post-processor, added-token flag and model switch by itself.

data/tokenizer_features.json
    models    two small models, BPE and Unigram
    texts     what each feature is tried on
    features  name; "use", a model, and "model", what it changes there; the sections of tokenizer.json;
              ids[i] of encode(texts[i]); kept[i] and skipped[i], decode of those with and without specials
              (null where Hugging Face's decoder itself fails), for features with a decoder

Made with tokenizers 0.23.3:  python tests/golden/tokenizer_features.py
"""
import base64
import json
import pathlib
import struct

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).parent / "data"
CORPUS = OUT / "tokenizer" / "corpus.txt"

TEXTS = ["", " ", "Hello world", "  the  tool ", "the tool's size", "ÉTÉ é e\u0301 \u212b ﬁ Ⅷ ½ ｶﾞ", "İstanbul ǅ STRASSE ß",
         "a1b22 333,4444.5 ٣٤ x²", "!?(a) [b] {c} — «d» 'e' ...", "tabs\tand\nlines\r\n\n end\u2028", "▁a ▁▁b_c __d", "車床 は か\u3099 각 ไทย",
         "😀👍🏽 👨\u200d👩\u200d👧 \u200b\ufeff\u00ad\u0007x\u007f", "<s>the</s> <s> </s>", "a <m> b <m>c  <M>  d", "word wordword word. _word wordé 車word",
         "    ", "<0x41>the <unk> tool", "Ġthe Ċ", "\ue000the\ue000\ue001 \U00020000tool", "two lines\nend\n", "\n\n"]


def n(*steps):
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": list(steps)}


def p(*steps):
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": list(steps)}


def d(*steps):
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "decoders": list(steps)}


def t(type, **members):
    return {"type": type, **members}


def replace(what, by, regex=False):
    return t("Replace", pattern={"Regex" if regex else "String": what}, content=by)


def split(what, behavior="Isolated", invert=False, regex=True):
    return t("Split", pattern={"Regex" if regex else "String": what}, behavior=behavior, invert=invert)


def metaspace(scheme, **members):
    return t("Metaspace", replacement="▁", prepend_scheme=scheme, **members)


def added(content, id, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": id, "content": content, **base, **flags}


def byte_level(prefix, regex):
    return t("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def charsmap(table):
    """SentencePiece's precompiled_charsmap: a Darts-clone double array of the keys, and the texts they become."""
    units, used, texts = [0] * 512, {0}, b""

    def place(at, keys):
        labels = sorted({k[0] for k in keys if k})
        labels = ([0] if b"" in keys else []) + labels
        base = next(b for b in range(1, 512) if all(b ^ x < 512 and b ^ x not in used for x in labels))
        used.update(base ^ x for x in labels)
        units[at] |= (at ^ base) << 10
        for x in labels:
            if x == 0:
                units[at] |= 1 << 8
                units[base] = keys[b""] | 1 << 31
            else:
                units[base ^ x] = x
                place(base ^ x, {k[1:]: v for k, v in keys.items() if k and k[0] == x})

    places = {}
    for key, text in table.items():
        places[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    place(0, places)
    trie = b"".join(struct.pack("<I", u) for u in units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


CHARSMAP = {"\t": " ", "\n": " ", "\u0007": "", "ﬁ": "fi", "½": "1⁄2", "ｶ": "カ", "ｶﾞ": "ガ", "e\u0301": "é", "\u00e9": "e", "\u212b": "Å",
            "Ⅷ": "VIII", "İ": "i", "\u200d": "", "車": "くるま", "a": "aa"}
WORDS = split(r"\w+|[^\w\s]+|\s+")
SPACED = metaspace("never")
NEXT = 10000  # an id beyond every model's: replaced by the next free one


def features():
    f = {}
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"):
        f[f"normalizer {name}"] = {"normalizer": t(name)}
    f["normalizer NFD then StripAccents then Lowercase"] = {"normalizer": n(t("NFD"), t("StripAccents"), t("Lowercase"))}
    f["normalizer Precompiled"] = {"normalizer": t("Precompiled", precompiled_charsmap=charsmap(CHARSMAP))}
    for left, right in ((1, 1), (1, 0), (0, 1)):
        f[f"normalizer Strip {left}{right}"] = {"normalizer": t("Strip", strip_left=bool(left), strip_right=bool(right))}
    f["normalizer Prepend"] = {"normalizer": t("Prepend", prepend="▁")}
    f["normalizer Prepend then Replace"] = {"normalizer": n(t("Prepend", prepend="▁"), replace(" ", "▁"))}
    f["normalizer Replace string"] = {"normalizer": replace("the", "tool")}
    f["normalizer Replace string by nothing"] = {"normalizer": replace("o", "")}
    f["normalizer Replace expression"] = {"normalizer": replace(r"\s{2,}|\p{N}+", "_", True)}
    for line, pattern in (("begins", "^"), ("ends", "$"), ("ends behind text", "x*$"), ("a last line's end", r"\Z"), ("the end", r"\z")):
        f[f"normalizer Replace {line}"] = {"normalizer": replace(pattern, "-", True)}
    f["normalizer Replace empty matches"] = {"normalizer": replace(r"o*", "-", True)}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            f[f"Split {behavior} invert {invert}"] = {"pre_tokenizer": split(r"[\se]", behavior, invert)}
        f[f"Split at the end of a line {behavior}"] = {"pre_tokenizer": split(r"\n$", behavior)}
        f[f"Split string {behavior}"] = {"pre_tokenizer": split(" ", behavior, regex=False)}
        f[f"Punctuation {behavior}"] = {"pre_tokenizer": t("Punctuation", behavior=behavior)}
    for rx in (r"\s+(?!\S)|\s+", r"\p{N}{1,3}+|\p{L}", r"(?=[A-Z])", r"(?i:'S|THE)|\d", r"[^(\s|[.,!?…])]+", r"\bw|d\b|\B_", r"^.|.$",
               r"\p{Han}+|\p{Hiragana}|\p{^L}", r"e*", r"[\S]|[^\S\n]", r"\h+", r"(?m:.)x?+", r"[\p{P}\p{S}&&]?[a-c]{,2}".replace("&&", ""),
               r"\x{1F600}|\u00e9|\x41", r"(?<=t)h|o(?!o)", r"(?>to|t)o|[]a]|\W+",
               # Classes that nest, negate and intersect; the first is Kimi-K2's.
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?",
               r"[\p{L}&&\p{Latin}&&[^aeiou]]+", r"[^\p{L}&&[a-z]]+", r"[a-e[^\p{Ll}]]", r"[\W\d]+|[^\P{L}]", r"[^[^\p{L}a-f][s-z]]+",
               r"[\w&&[^\d_&&[^3]]]{2,}", r"[a-&&[-a]]|[o&&[^[^o]]]", r"(?<=[\p{L}&&[^t]])[eo&&[^o]]"):
        f[f"expression {rx}"] = {"pre_tokenizer": split(rx)}
    for one in (True, False):
        f[f"Digits {one}"] = {"pre_tokenizer": t("Digits", individual_digits=one)}
        f[f"Digits {one} then ByteLevel"] = {"pre_tokenizer": p(t("Digits", individual_digits=one), byte_level(False, True)),
                                             "decoder": byte_level(True, True)}
    for name in ("Whitespace", "WhitespaceSplit"):
        f[name] = {"pre_tokenizer": t(name)}
    for scheme in ("first", "never", "always"):
        for cut in (True, False):
            f[f"Metaspace {scheme} split {cut}"] = {"pre_tokenizer": metaspace(scheme, split=cut), "decoder": metaspace(scheme),
                                                     "added_tokens": [added("<m>", NEXT)]}
    f["Metaspace add_prefix_space true"] = {"pre_tokenizer": t("Metaspace", replacement="▁", add_prefix_space=True)}
    f["Metaspace add_prefix_space false"] = {"pre_tokenizer": metaspace("never", add_prefix_space=False)}
    f["Metaspace first behind Strip"] = {"normalizer": t("Strip", strip_left=True, strip_right=False), "pre_tokenizer": metaspace("first")}
    f["Metaspace first behind splits"] = {"normalizer": t("NFKD"), "pre_tokenizer": p(split("[aeiou]"), metaspace("first"))}
    for prefix in (True, False):
        for regex in (True, False):
            f[f"ByteLevel prefix {prefix} regex {regex}"] = {"pre_tokenizer": byte_level(prefix, regex), "decoder": byte_level(True, True)}
    f["ByteLevel between others"] = {"pre_tokenizer": p(t("Punctuation", behavior="Contiguous"), byte_level(False, True),
                                                        t("Digits", individual_digits=False), split("[0-9][0-9][0-9]")),
                                     "decoder": byte_level(True, True)}
    f["no decoder"] = {"pre_tokenizer": WORDS}
    fallback = {"use": "bytes", "model": {"byte_fallback": True}}
    f["decoder of Llama 2"] = {**fallback, "normalizer": n(t("Prepend", prepend="▁"), replace(" ", "▁")),
                               "decoder": d(replace("▁", " "), t("ByteFallback"), t("Fuse"), t("Strip", content=" ", start=1, stop=0))}
    f["decoder of Gemma"] = {**fallback, "normalizer": replace(" ", "▁"), "pre_tokenizer": split(" ", "MergedWithPrevious", regex=False),
                             "decoder": d(replace("▁", " "), t("ByteFallback"), t("Fuse"))}
    f["decoder Strip two and one"] = {"pre_tokenizer": SPACED, "decoder": d(t("Strip", content="▁", start=2, stop=0), t("Fuse"),
                                                                            t("Strip", content="l", start=0, stop=1))}
    f["decoder Replace expression"] = {"pre_tokenizer": SPACED, "decoder": d(replace("[aeiou▁]+", "*", True), t("Fuse"))}
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for flag in flags:
        f[f"added {flag}"] = {"normalizer": t("Lowercase"), "pre_tokenizer": SPACED, "decoder": metaspace("never"), "added_tokens": [
            added("<m>", NEXT, **{flag: True}), added("word", NEXT + 1, **{flag: True}),
            # (not "<M>" where both would be looked for as "<m>": which one is found, Hugging Face leaves to chance)
            added("<M>" if flag != "normalized" else "<x>", NEXT + 2, **{flag: True})]}
    f["added all flags"] = {"normalizer": t("NFKC"), "pre_tokenizer": metaspace("first"), "decoder": metaspace("first"), "added_tokens": [
        added("<m>", NEXT, **{k: True for k in flags}), added("  ", NEXT + 1, lstrip=True, rstrip=True),
        added("word", NEXT + 2, rstrip=True), added("ﬁ", NEXT + 3, normalized=True, special=True)]}
    f["added longest first"] = {"added_tokens": [added("wor", NEXT), added("word", NEXT + 1), added("wordw", NEXT + 2), added("ord", NEXT + 3)]}
    special = {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}
    sequence, first, last = [{k: {"id": i, "type_id": 0}} for k, i in (("Sequence", "A"), ("SpecialToken", "<s>"), ("SpecialToken", "</s>"))]
    f["TemplateProcessing"] = {"post_processor": t("TemplateProcessing", single=[first, first, sequence, last],
                                                   pair=[sequence], special_tokens=special)}
    f["BertProcessing"] = {"post_processor": t("BertProcessing", sep=["</s>", 2], cls=["<s>", 1])}
    f["RobertaProcessing"] = {"post_processor": t("RobertaProcessing", sep=["</s>", 2], cls=["<s>", 1], trim_offsets=True,
                                                  add_prefix_space=False)}
    f["post-processor sequence"] = {"post_processor": t("Sequence", processors=[
        byte_level(True, True), t("TemplateProcessing", single=[first, sequence], pair=[sequence], special_tokens=special)])}
    for fuse in (True, False):
        for use in ("bpe", "bytes"):
            for fall in (True, False):
                f[f"BPE {use} fuse_unk {fuse} byte_fallback {fall}"] = {"use": use, "model": {"fuse_unk": fuse, "byte_fallback": fall}}
    f["BPE without unk"] = {"model": {"unk_token": None}}
    f["BPE ignore_merges"] = {"model": {"ignore_merges": True}, "pre_tokenizer": WORDS}
    f["BPE merges as text"] = {"model": {"merges": "text"}, "pre_tokenizer": WORDS}
    f["Unigram"] = {"use": "unigram"}
    f["Unigram Metaspace"] = {"use": "unigram", "pre_tokenizer": metaspace("always"), "decoder": metaspace("always")}
    f["Unigram byte_fallback"] = {"use": "unigram bytes", "model": {"byte_fallback": True}, "normalizer": t("NFKC"),
                                  "pre_tokenizer": metaspace("always"), "decoder": d(t("ByteFallback"), metaspace("always"))}
    f["Unigram byte_fallback without the tokens"] = {"use": "unigram", "model": {"byte_fallback": True}}
    return f


def base_models():
    texts = CORPUS.read_text().split("\n\n")
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    out = {}
    alphabet = list("▁ _-.,'!?()[]ĠĊé²")
    for name, extra in (("bpe", pre_tokenizers.ByteLevel.alphabet()), ("bytes", [])):
        tok = Tokenizer(models.BPE(unk_token="<unk>"))
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Punctuation()])
        tok.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=520, special_tokens=["<unk>", "<s>", "</s>"] + (bytes_ if name == "bytes" else []),
            initial_alphabet=sorted(extra) + alphabet, limit_alphabet=len(extra) + 60, show_progress=False))
        out[name] = json.loads(tok.to_str())["model"]
        if name == "bpe":  # entries that no merge makes
            for word in ("world", "Ġworld", "standing", "size"):
                out[name]["vocab"].setdefault(word, len(out[name]["vocab"]))
    for name in ("unigram", "unigram bytes"):
        tok = Tokenizer(models.Unigram())
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tok.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
                                                               show_progress=False))
        out[name] = json.loads(tok.to_str())["model"]
        vocab = out[name]["vocab"]
        vocab[:] = [[w, round(s, 6)] for w, s in vocab if len(w) > 1 or ord(w) < 0x3000]
        if name == "unigram bytes":
            vocab += [[b, 0.0] for b in bytes_]
    return out


def decode(tok, ids, skip):
    try:
        return tok.decode(ids, skip_special_tokens=skip)
    except BaseException:  # a panic of the decoder
        return None


def main():
    made = OUT / "tokenizer_features.json"  # training is not repeatable: models once made are kept
    models_ = json.loads(made.read_text())["models"] if made.exists() else base_models()
    out = {"models": models_, "texts": TEXTS, "features": []}
    for name, f in features().items():
        model = dict(models_[f.get("use", "bpe")])
        for key, value in f.get("model", {}).items():
            model[key] = [" ".join(m) for m in model["merges"]] if value == "text" else value
        vocab = model["vocab"]
        tokens = [added(w, i, special=True) for i, w in enumerate(("<unk>", "<s>", "</s>"))]
        free = len(vocab)
        for token in f.get("added_tokens", []):
            token = dict(token)
            token["id"] = vocab[token["content"]] if isinstance(vocab, dict) and token["content"] in vocab else free
            free += token["id"] == free
            tokens.append(token)
        root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
                "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
        root.update({k: v for k, v in f.items() if k in root and k != "added_tokens"})
        tok = Tokenizer.from_str(json.dumps({**root, "model": model}))
        ids = [tok.encode(x).ids for x in TEXTS]
        entry = {"name": name, "use": f.get("use", "bpe"), "model": f.get("model", {}),
                 **{k: root[k] for k in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")},
                 "ids": ids}
        if root["decoder"] or name == "no decoder":
            entry["kept"] = [decode(tok, i, False) for i in ids]
            entry["skipped"] = [decode(tok, i, True) for i in ids]
        out["features"].append(entry)
    with open(OUT / "tokenizer_features.json", "w") as file:
        file.write('{"models":' + json.dumps(models_, separators=(",", ":")) + ',\n"texts":' + json.dumps(TEXTS) + ',\n"features":[\n')
        file.write(",\n".join(json.dumps(x, separators=(",", ":")) for x in out["features"]) + "\n]}\n")
    print(len(out["features"]), "features")


if __name__ == "__main__":
    main()
