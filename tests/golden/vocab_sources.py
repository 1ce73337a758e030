"""Folders whose vocabulary has another form than tokenizer.json, and the ids that transformers gives.

data/vocab_sources/NAME/      the files of a folder: a SentencePiece model, tekken.json, lines of tiktoken, vocab.json with
                              merges.txt, or vocab.txt, with config.json and tokenizer_config.json
data/vocab_sources/NAME.json  {"texts": [...], "ids": with special tokens, "plain": without, "decoded", "kept": text with and
                              without special tokens}, of AutoTokenizer.from_pretrained(folder)
data/vocab_sources/classes.json  the class of transformers for every model_type, and the types whose class on the Hub is wrong

    python tests/golden/vocab_sources.py            makes them (sentencepiece, transformers 5.24, tokenizers 0.23, tiktoken)
    python tests/golden/vocab_sources.py --compare LATHE [--lines N]
        compares N lines (default 20,000; see real_tokenizer.py) of each folder with what transformers makes of it
"""
import argparse
import base64
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import sentencepiece as spm  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402
from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: E402
from transformers.models.auto import tokenization_auto as auto  # noqa: E402

transformers.logging.set_verbosity_error()
OUT = pathlib.Path(__file__).resolve().parent / "data" / "vocab_sources"
WORDS = ("the quick brown fox jumps over a lazy dog while seven wise wizards brew potions and the other "
         "people there think that they know this thing better than those who were here before them "
         "température élève façade naïve über größe straße привет мир как дела хорошо").split()


def corpus():
    rng = random.Random(7)
    for _ in range(3000):
        yield " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 12)))
    for _ in range(200):
        yield "   ".join(rng.choice(WORDS) for _ in range(3)) + "\t" + str(rng.randint(0, 99999))


# A charsmap of a few hundred bytes in the place of nmt_nfkc's 240,000.
RULES = {"Ａ": "A", "ﬁ": "fi", "\u00a0": " ", "\t": " ", "\n": " ", "①": "1", "\u200b": "", "e\u0301": "\u00e9", "ǅ": "Dž"}


def train(**options):
    model = io.BytesIO()
    given = {"sentence_iterator": corpus(), "model_writer": model, "vocab_size": 560, "num_threads": 1, "character_coverage": 1.0,
             "minloglevel": 2}
    given.update(options)
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8")
    if "normalization_rule_name" not in given:
        for left, right in RULES.items():
            rules.write(" ".join(f"{ord(c):04X}" for c in left) + "\t" + " ".join(f"{ord(c):04X}" for c in right) + "\n")
        rules.flush()
        given["normalization_rule_tsv"] = rules.name
    spm.SentencePieceTrainer.train(**given)
    return model.getvalue()


def put(name, file, data, model_type, config=None, **more):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}) + "\n")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    for key, value in more.items():
        (folder / key.replace("__", ".")).write_text(value)


def special(text, **flags):
    return {"content": text, "special": True, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, **flags}


def sentencepiece_folders():
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_digits": True,
             "allow_whitespace_only_pieces": True, "byte_fallback": True, "model_type": "bpe"}
    llama = train(**plain)
    put("llama", "tokenizer.model", llama, "llama", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": False})
    put("llama_old", "tokenizer.model", llama, "llama", {"tokenizer_class": "LlamaTokenizerFast", "legacy": True, "add_eos_token": True,
                                                         "added_tokens_decoder": {"560": special("<|im_start|>"), "5": special("<0x02>")}})
    put("llama_none", "tokenizer.model", llama, "llama")
    put("mistral", "tokenizer.model", llama, "mistral", {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True,
                                                         "pad_token": "<pad>"})
    user = train(model_type="bpe", byte_fallback=True, user_defined_symbols=["<|user|>", "▁▁", "wizard", "a.b", "x-[y]"],
                 control_symbols=["<|ctl|>"], pad_id=3)
    put("pieces", "tokenizer.model", user, "llama", {"added_tokens_decoder": {"4": special("<|renamed|>")}})
    put("pieces_llama", "tokenizer.model", user, "llama", {"tokenizer_class": "LlamaTokenizer"})
    unigram = train(model_type="unigram", user_defined_symbols=["<|user|>"], control_symbols=["<|ctl|>"], vocab_size=280)
    put("unigram", "tokenizer.model", unigram, "llama")
    put("unigram_bytes", "tokenizer.model", train(model_type="unigram", byte_fallback=True, vocab_size=530), "mistral",
        {"legacy": False})
    put("t5", "spiece.model", train(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, vocab_size=280), "t5",
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 7})
    put("xlm_roberta", "sentencepiece.bpe.model", train(model_type="unigram", vocab_size=280), "xlm-roberta")
    put("gemma", "tokenizer.model",
        train(add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", bos_piece="<bos>", eos_piece="<eos>",
              user_defined_symbols=["<mask>", "<start_of_turn>", "\n\n", "▁▁"], **plain), "gemma2", {"add_bos_token": True})


def bytes_bpe():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=500, special_tokens=["<|endoftext|>"], show_progress=False,
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]


def bytes_folders():
    vocab, merges = bytes_bpe()
    lines = "#version: 0.2\n" + "".join(m + "\n" for m in merges)

    def slow(name, model_type, config):
        put(name, "vocab.json", json.dumps(vocab).encode(), model_type, config, merges__txt=lines)

    slow("gpt2", "gpt2", None)
    slow("gpt2_bos", "llama", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": True})
    slow("qwen2", "qwen2", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "bos_token": None,
                            "added_tokens_decoder": {"500": special("<|im_start|>"), "501": special("<|im_end|>")}})
    slow("gpt_neox", "gpt_neox", {"tokenizer_class": "GPTNeoXTokenizer"})
    slow("roberta", "roberta", None)
    back = {c: b for b, c in bytes_to_unicode().items()}
    items = [bytes(back[c] for c in key) for key, _ in sorted(vocab.items(), key=lambda x: x[1]) if key != "<|endoftext|>"]
    items = sorted(i for i in items if len(i) == 1) + [i for i in items if len(i) > 1]
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
               r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tekken = {"config": {"pattern": pattern, "num_vocab_tokens": 520, "default_vocab_size": 500, "default_num_special_tokens": 20,
                         "version": "v7"},
              "vocab": [{"rank": i, "token_bytes": base64.b64encode(x).decode(), "token_str": None} for i, x in enumerate(items)],
              "special_tokens": [{"rank": i, "token_str": s, "is_control": True} for i, s in
                                 enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]}
    put("tekken", "tekken.json", json.dumps(tekken).encode(), "mistral")
    put("tekken_bos", "tekken.json", json.dumps(tekken).encode(), "mistral3", {"add_bos_token": True, "bos_token": "<s>"})
    lines = b"".join(base64.b64encode(x) + b" %d\n" % i for i, x in enumerate(items))
    put("tiktoken", "tokenizer.model", lines, "llama", {"extra_special_tokens": ["<|a|>", "<|b|>"]})
    put("tiktoken_ids", "tiktoken.model", lines, "kimi_k25", {"bos_token": "<|im_start|>",
                                                              "added_tokens_decoder": {"503": special("<|im_start|>")}})


def word_folders():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyzäöüéß.,!?'-0123456789AÀT日本пр"]
    words += ["##" + c for c in "abcdefghijklmnopqrstuvwxyzäöüривет0123456789"]
    words += ["the", "quick", "##ing", "there", "brown", "hello", "##ello", "##the", "The", "##本", "don", "n't"]
    text = "".join(w + "\n" for w in words)
    put("bert", "vocab.txt", text.encode(), "bert")
    put("bert_cased", "vocab.txt", text.replace("\n", " \r\n").encode(), "bert", {"do_lower_case": False,
                                                                                "tokenizer_class": "BertTokenizer"})
    put("bert_accents", "vocab.txt", text.encode(), "distilbert", {"do_lower_case": True, "strip_accents": False,
                                                                   "tokenize_chinese_chars": False,
                                                                   "tokenizer_class": "DistilBertTokenizer"})


def json_folders():
    """tokenizer.json with the models of words, and settings that no vocab.txt has."""
    def save(name, tok):
        tok.add_special_tokens(["[CLS]", "[SEP]"])
        tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        put(name, "tokenizer.json", tok.to_str().encode(), "llama", {"tokenizer_class": "PreTrainedTokenizerFast"})

    words = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "quick", "fox", "ab", "~c", "~the", "a", "~é", ",", "hi"])}
    level = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    level.pre_tokenizer = pre_tokenizers.Whitespace()
    save("word_level", level)
    piece = Tokenizer(models.WordPiece(words, unk_token="[UNK]", continuing_subword_prefix="~", max_input_chars_per_word=7))
    piece.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=True, lowercase=False)
    piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    piece.decoder = decoders.WordPiece(prefix="~", cleanup=False)
    save("word_piece", piece)


TEXTS = ["", "the", " the", "the quick brown fox", "  two  spaces   three ", "the\nother\n\npeople\t123 4567", "naïve façade über straße",
         "привет мир", "日本語のテキスト 日本", "emoji 😀😁 and \u200d joiner", "thethethethe thththth", "aaaaaaaaaaaaaaaa", " ", "   ", "\n",
         "a", "▁the▁ ▁", "▁▁x", "<0x41> is a byte token's text", "x" * 120, "trailing space ", "The WIZARDS Brew", "é", "e\u0301", "\x01\x7f",
         "ththeorththe ", "oververovere", "a.b axb x-[y] wizards", "<|user|> hi<|user|>", "<|ctl|>hi", "<s>hi</s> there", "<unk> <pad>",
         "<|im_start|>user hi<|im_end|>", "Ａ ﬁ ① ǅ\u00a0x\u200by", "[INST] hi [/INST]", "[CLS] hello [SEP][MASK]", "don't, can't! x ? 'm",
         "<|endoftext|>x<|endoftext|>", "<mask><bos>x<start_of_turn>y", "<extra_id_0> the <extra_id_6>", "<|a|> <|b|> <|renamed|>"]


def cases(folder):
    tok = AutoTokenizer.from_pretrained(folder)
    ids = [tok.encode(t) for t in TEXTS]
    return {"texts": TEXTS, "ids": ids, "plain": [tok.encode(t, add_special_tokens=False) for t in TEXTS],
            "decoded": [tok.decode(i, clean_up_tokenization_spaces=False) for i in ids],
            "kept": [tok.decode(i, skip_special_tokens=True, clean_up_tokenization_spaces=False) for i in ids],
            "named": {k: tok.convert_tokens_to_ids(v) for k, v in tok.special_tokens_map.items() if isinstance(v, str)}}


def classes():
    names = {"LlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", "XLMRobertaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer",
             "GPTNeoXTokenizer", "RobertaTokenizer", "BertTokenizer", "TokenizersBackend"}
    out = {}
    for key, value in auto.TOKENIZER_MAPPING_NAMES.items():
        value = (value or "").removesuffix("Fast").replace("MistralCommonBackend", "TokenizersBackend")
        out[key] = value if value in names else "other"
    return {"types": out, "wrong_on_hub": sorted(auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS)}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--compare", metavar="LATHE")
    args.add_argument("--lines", type=int, default=20000)
    args = args.parse_args()
    if args.compare:
        script = pathlib.Path(__file__).resolve().parent / "real_tokenizer.py"
        wrong = 0
        for folder in sorted(p for p in OUT.iterdir() if p.is_dir()):
            print(f"== {folder.name}", flush=True)
            wrong += subprocess.run([sys.executable, script, folder, args.compare, "--lines", str(args.lines)], check=False).returncode != 0
        return 1 if wrong else 0
    sentencepiece_folders()
    bytes_folders()
    word_folders()
    json_folders()
    for folder in sorted(p for p in OUT.iterdir() if p.is_dir()):
        (OUT / f"{folder.name}.json").write_text(json.dumps(cases(folder)) + "\n")
    (OUT / "classes.json").write_text(json.dumps(classes(), indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
