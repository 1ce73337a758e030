"""Keys that transformers 5.24 reads: of generation_config.json, and of tokenizer_config.json and
special_tokens_map.json for a tokenizer with a tokenizer.json, and the arguments of the tokenizer
classes of the families that Lathe has, which save_pretrained writes. Writes data/config_keys.json, with
which tests compare Lathe's tables: a key that a new version brings must get its place there.

    python tests/golden/config_keys.py
"""

import ast
import inspect
import json
import os
import re

import transformers
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

HERE = os.path.dirname(os.path.abspath(__file__))


def popped(source):
    """Names that a source takes out of its keyword arguments."""
    return set(re.findall(r"kwargs\.(?:pop|get|setdefault)\(\s*[\"'](\w+)[\"']", source))


def arguments():
    """Names of the arguments of the classes of models, which save_pretrained writes."""
    found = set()
    for name in ["code_llama", "cohere", "gemma", "gpt2", "gpt_neox", "llama", "qwen2", "qwen3_5",
                 "seed_oss", "t5"]:
        path = os.path.join(os.path.dirname(transformers.__file__), "models", name, f"tokenization_{name}.py")
        if not os.path.exists(path):
            continue
        for node in ast.walk(ast.parse(open(path, encoding="utf-8").read())):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found |= {a.arg for a in node.args.args + node.args.kwonlyargs}
    return found - {"self", "vocab", "merges"} - {a for a in found if a.startswith("_")}


def main():
    generation = popped(inspect.getsource(GenerationConfig.__init__))
    generation |= set(GenerationConfig().__dict__)
    tokenizer = popped(inspect.getsource(TokenizersBackend.__init__))
    tokenizer |= popped(inspect.getsource(PreTrainedTokenizerBase.__init__))
    tokenizer |= popped(inspect.getsource(PreTrainedTokenizerBase._from_pretrained))
    tokenizer |= set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES)
#what save_pretrained writes
    tokenizer |= {"tokenizer_class", "auto_map", "chat_template", "extra_special_tokens",
                  "additional_special_tokens", "added_tokens_decoder", "clean_up_tokenization_spaces",
                  "model_max_length", "padding_side", "truncation_side", "split_special_tokens"}
    # arguments that no file has: the files' own places, and what is made of them
    tokenizer -= {"_json_padding", "_json_truncation", "_spm_precompiled_charsmap", "files_loaded",
                  "gguf_file", "merges", "tokenizer", "tokenizer_file", "tokenizer_object", "unk_id",
                  "vocab", "vocab_file"}
    path = os.path.join(HERE, "data", "config_keys.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"generation_config": sorted(generation), "tokenizer_config": sorted(tokenizer),
                   "tokenizer_arguments": sorted(arguments())}, file,
                  indent=1)
        file.write("\n")


main()
