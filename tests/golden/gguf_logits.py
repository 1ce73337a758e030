#!/usr/bin/env python3
"""Logits of llama.cpp for GGUF files that `lathe convert` makes of tiny models with experts, compared with those of transformers.

    /path/to/python tests/golden/gguf_logits.py LATHE [MODEL ...]

Needs the package xllamacpp (2026.10.11549 was used), whose library has the C functions of llama.h: 20 random tokens, one at a time,
f32 weights and caches, no flash attention. Of mixtral the window is taken out, which llama.cpp does not have; olmoe gets as many key
heads as query heads, and random weights. Prints the largest difference, and exits with 1 if one is above 2e-5.
"""
import ctypes
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import xllamacpp
from transformers import AutoConfig, AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
MODELS = ["mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "glm4_moe", "glm4_moe_groups"]
CHANGES = {"mixtral": {"sliding_window": None}, "olmoe": {"num_key_value_heads": 4}}
TOKENS = [int(x) for x in np.random.default_rng(1).integers(3, 60, 20)]


class Params(ctypes.Structure):  # llama_model_params or llama_context_params: larger than both
    _fields_ = [("bytes", ctypes.c_ubyte * 320)]


class Batch(ctypes.Structure):  # llama_batch
    _fields_ = [("n_tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


def library():
    lib = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("*.so"))))
    for name, result, args in (("model_default_params", Params, []), ("context_default_params", Params, []),
                               ("model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Params]),
                               ("init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Params]),
                               ("batch_get_one", Batch, [ctypes.c_void_p, ctypes.c_int32]),
                               ("decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
                               ("get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32])):
        function = getattr(lib, "llama_" + name)
        function.restype, function.argtypes = result, args
    lib.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *args: None)
    lib.llama_log_set(lib.silent, None)
    lib.llama_backend_init()
    return lib


def exact(params):
    """The parameters of a context with caches in f32 and without flash attention. The members are found by their defaults: four enums
    of -1, the last of which is flash_attn_type, and two ggml_types of 1, f16."""
    raw = bytearray(bytes(params.bytes))
    ints = struct.unpack("80i", raw)
    unset = next(i for i in range(76) if ints[i:i + 4] == (-1, -1, -1, -1))
    types = next(i for i in range(unset, 76) if ints[i:i + 2] == (1, 1))
    struct.pack_into("i", raw, 4 * (unset + 3), 0)
    struct.pack_into("2i", raw, 4 * types, 0, 0)
    params.bytes[:] = list(raw)
    return params


def of_llama_cpp(lib, path, vocab):
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    context = lib.llama_init_from_model(model, exact(lib.llama_context_default_params())) if model else None
    assert context, f"llama.cpp does not load {path.name}"
    rows = []
    for token in TOKENS:
        one = (ctypes.c_int32 * 1)(token)
        assert lib.llama_decode(context, lib.llama_batch_get_one(ctypes.cast(one, ctypes.c_void_p), 1)) == 0
        rows.append(np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (vocab,)).copy())
    return np.stack(rows)


def make(name, work):
    folder = work / name
    shutil.copytree(DATA / "models" / name, folder)
    shutil.copy(DATA / "tokenizer" / "tiny_64.json", folder / "tokenizer.json")
    config = {**json.loads((folder / "config.json").read_text()), **CHANGES.get(name, {})}
    (folder / "config.json").write_text(json.dumps(config))
    if name == "olmoe":
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(8) if p.dim() > 1 else p.add_(0.1 * torch.randn_like(p))
        model.save_pretrained(folder)
    return folder


def main():
    lathe, lib, worst = pathlib.Path(sys.argv[1]).resolve(), library(), 0.0
    for name in sys.argv[2:] or MODELS:
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            folder = make(name, work)
            subprocess.run([lathe, "convert", folder, "-o", work / "m.gguf", "--type", "f32"], check=True, capture_output=True)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            with torch.no_grad():
                want = model(torch.tensor([TOKENS])).logits[0].numpy()
            difference = float(np.abs(of_llama_cpp(lib, work / "m.gguf", want.shape[1]) - want).max())
            print(f"{name}: {difference:.2g} of {np.abs(want).max():.3g}")
            worst = max(worst, difference)
    sys.exit(worst > 2e-5)


if __name__ == "__main__":
    main()
