"""Writes data/token_files.json: how transformers 5.24 reads a tokenizer.json with the files beside it.

Each case has the files tokenizer_config.json, special_tokens_map.json and added_tokens.json, a text
and its ids, the ids of the special tokens, and the text decoded without special tokens; or "refused".
The tokenizer is byte-level, without merges: ids 0 to 255 are bytes, then come three added tokens.
tests/cases/tokens/tokens_case.h writes the same one.

    python tests/golden/token_files.py
"""

import json
import os
import tempfile

from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FLAGS = ["lstrip", "rstrip", "normalized", "single_word", "special"]


def byte_chars():
    """The characters that stand for bytes, of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, more = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + more)
            more += 1
    return chars


def tokenizer():
    chars = byte_chars()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256 + i, "content": c, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, c in enumerate(NAMES)],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None,
        "decoder": {**level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {chars[b]: b for b in range(256)}, "merges": []}}


def token(content, **flags):
    return {"content": content, **{f: False for f in FLAGS}, **flags}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def decoder(**tokens):
    return {"added_tokens_decoder": {k[1:]: v for k, v in tokens.items()}}


def cases():
    """(config, special_tokens_map, added_tokens, text); None: there is no such file."""
    yield {}, None, None, "hello world"
    yield decoder(_259=token("world")), None, None, "hello world"
    yield decoder(_407=token("world"), _300=token("hello")), None, None, "hello world"
    yield decoder(_5=token("world")), None, None, "hello world"
    yield decoder(_258=token("<|foo|>")), None, None, "x<|foo|><|im_end|>"
    for flag in FLAGS:
        yield decoder(_258=token("<|im_end|>", **{"special": True, flag: True})), None, None, \
            "a <|im_end|> b<|im_end|>c"
    yield decoder(_258=token("<|im_end|>")), None, None, "a <|im_end|> b"
    yield decoder(_258={"content": "<|im_end|>"}), None, None, "a <|im_end|> b"
    yield decoder(_259=token("HI", normalized=True)), None, None, "HI hi"
    yield decoder(_65=token("A", special=True)), None, None, "AB"
    yield {"extra_special_tokens": ["<extra>"]}, None, None, "a <extra> b"
    yield {"extra_special_tokens": {"image_token": "<image>"}}, None, None, "a<image>b"
    yield {"image_token": "<image>"}, None, None, "a<image>b"
    yield {"image_token": typed("<image>", rstrip=True)}, None, None, "a<image> b"
    yield {}, {"image_token": token("<image>", rstrip=True)}, None, "a<image> b"
    yield {"additional_special_tokens": ["<a>", "<|im_end|>"]}, None, None, "<a>b<|im_end|>"
    yield {"additional_special_tokens": [typed("<a>", rstrip=True, special=True), "<b>"]}, None, \
        None, "<b><a> c"
    yield {"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<b>"]}, None, None, "<a><b>"
    yield {}, None, {"world": 259}, "hello world"
    yield {}, None, {"world": 409, "hello": 300}, "hello world"
    yield {}, None, {"world": 257, "hello": 300}, "hello world"
    yield {}, None, {"<|im_end|>": 258}, "a<|im_end|>"
    yield {"pad_token": "<p>"}, None, {"<p>": 259, "x": 260}, "a<p>x"
    yield decoder(_259=token("y")), None, {"world": 259}, "hello world y"
    yield {"pad_token": "[PAD]"}, None, None, "a[PAD]"
    yield {"pad_token": "[PAD]", **decoder(_259=token("[PAD]", special=True))}, None, None, "a[PAD]"
    yield {"pad_token": "[P]", "eos_token": "[E]", "bos_token": "[B]", "unk_token": "[U]",
           "mask_token": "[M]", "cls_token": "[C]", "sep_token": "[S]"}, None, None, \
        "[P][E][B][U][M][C][S]"
    yield {"eos_token": "<|endoftext|>"}, {"eos_token": "<|im_end|>"}, None, "a"
    yield {"eos_token": "<|endoftext|>", **decoder(_258=token("<|im_end|>"))}, \
        {"eos_token": "<|im_end|>"}, None, "a"
    yield {"eos_token": "<|endoftext|>", "added_tokens_decoder": {}}, {"eos_token": "<|im_end|>"}, \
        None, "a"
    yield {}, {"eos_token": token("<|im_end|>", rstrip=True)}, None, "a<|im_end|> b"
    yield {}, {"pad_token": token("<q>", rstrip=True)}, None, "a<q> b"
    yield {}, {"additional_special_tokens": ["<q>"]}, None, "a<q> b"
    yield {}, {"pad_token": "<q>", "bos_token": "<r>"}, {"<q>": 260, "<r>": 259}, "<q><r>"
    yield {"eos_token": typed("<|im_end|>", rstrip=True)}, None, None, "a<|im_end|> b"
    yield {"unk_token": "A"}, None, None, "ABA"
    yield {"add_bos_token": True, "bos_token": "<|im_start|>", "add_eos_token": True}, None, None, "a"
    yield {"do_lower_case": True, "add_prefix_space": True, "model_max_length": 3,
           "padding_side": "left", "clean_up_tokenization_spaces": True}, None, None, "AB cd ."


def run(folder, config, special, added, text):
    base = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    files = {"tokenizer.json": tokenizer(), "tokenizer_config.json": {**base, **config},
             "special_tokens_map.json": special, "added_tokens.json": added}
    for name, content in files.items():
        if content is not None:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file)
    t = AutoTokenizer.from_pretrained(folder)
    ids = t.encode(text)
    del files["tokenizer.json"]
    return {"files": {k: v for k, v in files.items() if v is not None}, "text": text, "ids": ids,
            "n_tokens": len(t), "bos": t.bos_token_id, "eos": t.eos_token_id, "pad": t.pad_token_id,
            "encoded_specially": t.encode(text, add_special_tokens=True)}


def main():
    out = []
    for config, special, added, text in cases():
        with tempfile.TemporaryDirectory() as folder:
            out.append(run(folder, config, special, added, text))
    with open(os.path.join(HERE, "data", "token_files.json"), "w", encoding="utf-8") as file:
        json.dump(out, file, indent=1, ensure_ascii=True)
        file.write("\n")


main()
