"""Makes tests/golden/data/gguf/spm*: SentencePiece tokenizers in GGUF files, and the ids of texts.

Needs sentencepiece, gguf, transformers and tokenizers. Two tokenizers are trained: one that puts a space before a text, as Llama 2's
does, and one that does not, as Gemma's. Each gives

  NAME.gguf            tokens, scores and types as convert_hf_to_gguf.py of llama.cpp writes them from tokenizer.model
  NAME/tokenizer.json  the same tokenizer as transformers' LlamaConverter and GemmaConverter make it
  NAME.json            texts, and the ids that sentencepiece gives them

    python tests/golden/gguf_spm.py
"""
import collections
import io
import json
import pathlib
import random

import gguf
import sentencepiece as spm
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data" / "gguf"
WORDS = ("the quick brown fox jumps over a lazy dog while seven wise wizards brew potions and the other "
         "people there think that they know this thing better than those who were here before them "
         "température élève façade naïve über größe straße привет мир как дела хорошо").split()


def corpus():
    rng = random.Random(7)
    for _ in range(3000):
        yield " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 12)))
    for _ in range(200):
        yield "   ".join(rng.choice(WORDS) for _ in range(3)) + "\t" + str(rng.randint(0, 99999))


def train(space):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, model_type="bpe", vocab_size=560, byte_fallback=True, num_threads=1,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=space,
        split_digits=True, allow_whitespace_only_pieces=True, unk_id=0, bos_id=1, eos_id=2, minloglevel=2)
    return model.getvalue()


TEXTS = ["", "the", " the", "the quick brown fox", "  two  spaces   three", "the\nother\n\npeople\t123 4567", "naïve façade über straße",
         "привет мир", "日本語のテキスト", "emoji 😀😁 and \u200d joiner", "thethethethe thththth", "aaaaaaaaaaaaaaaa", " ", "   ", "\n", "a",
         "▁the▁ ▁", "<0x41> is a byte token's text", "x" * 40, "trailing space ", "The WIZARDS Brew", "1234567890", "é", "e\u0301", "\x01\x7f",
         "ththeorththe ", "oververovere"]


def texts():
    rng = random.Random(11)
    out = list(TEXTS)
    for _ in range(60):
        out.append("".join(rng.choice("theorandvsaeiouß 1 \t\nпри") for _ in range(rng.randint(1, 60))))
    return out


Piece = collections.namedtuple("Piece", "piece score type")


def pieces(sp):
    def kind(i):
        for number, test in ((2, sp.is_unknown), (3, sp.is_control), (5, sp.is_unused), (6, sp.is_byte)):
            if test(i):
                return number
        return 1

    return [Piece(sp.id_to_piece(i), sp.get_score(i), kind(i)) for i in range(sp.get_piece_size())]


def write_gguf(path, list_, space):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([p.piece.encode() for p in list_])
    w.add_token_scores([p.score for p in list_])
    w.add_token_types([p.type for p in list_])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_space_prefix(space)
    w.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_json(folder, list_, space):
    """What convert_slow_tokenizer of transformers makes of tokenizer.model (its SentencePieceExtractor and LlamaConverter)."""
    vocab = {p.piece: i for i, p in enumerate(list_)}
    scores = {p.piece: p.score for p in list_}
    merges = []
    for piece, score in scores.items():
        local = []
        for k in range(1, len(piece)):
            left, right = piece[:k], piece[k:]
            if left in vocab and right in vocab:
                local.append((left, right, score))
        merges += sorted(local, key=lambda x: (vocab[x[0]], vocab[x[1]]))
    merges = sorted(merges, key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    tok = Tokenizer(BPE(vocab, [m[:2] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if space else replace
    if not space:
        tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tok.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if space else []))
    tok.add_special_tokens([AddedToken(p.piece, normalized=False, special=True) for p in list_ if p.type in (2, 3)])
    folder.mkdir(parents=True, exist_ok=True)
    tok.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast"}) + "\n")


def main():
    for name, space in (("spm_llama", True), ("spm_gemma", False)):
        data = train(space)
        sp = spm.SentencePieceProcessor(model_proto=data)
        list_ = pieces(sp)
        write_gguf(OUT / f"{name}.gguf", list_, space)
        write_json(OUT / name, list_, space)
        cases = [{"text": t, "ids": sp.encode(t)} for t in texts()]
        (OUT / f"{name}.json").write_text(json.dumps(cases, ensure_ascii=True, indent=0) + "\n")


main()
