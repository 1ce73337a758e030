"""Writes tests/golden/data/gguf: blocks of every type with the values that gguf-py decodes, and files of the container.

    /path/to/python tests/golden/gguf_files.py QUANTIZE
    /path/to/python tests/golden/gguf_files.py --read-only      # only codecs_read.*: types that Lathe reads and does not write

gguf 0.19.0, numpy, safetensors. QUANTIZE is a program `quantize TYPE` that reads f32 from its standard input and writes the
blocks of ggml_quantize_chunk (llama.cpp, as in llama-cpp-python 0.3.36), for the types that gguf-py does not encode.
"""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = Path(__file__).parent / "data" / "gguf"
ROWS, COLS = 4, 256
DECODED = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]
ENCODED = [T.F16, T.BF16, T.Q4_0, T.Q5_0, T.Q8_0]
SEARCHED = [T.Q4_K, T.Q6_K]
READ = [T.Q2_K, T.Q3_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4]
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
          T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}


def random_blocks(rng, kind):
    """Any bytes as codes, and finite f16 as scales."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n = ROWS * COLS // block
    out = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if block == 1:
        x = rng.normal(0, 1, (ROWS, COLS)).astype(np.float32)
        return gguf.quants.quantize(x, kind).view(np.uint8).reshape(ROWS, -1)
    for at in HALVES[kind]:
        out[:, at : at + 2] = rng.normal(0, 0.1, (n, 1)).astype(np.float16).view(np.uint8)
    return out.reshape(ROWS, -1)


def values(rng):
    """Like weights: normal, with a few large ones, a row of zeros and one of a single sign."""
    x = rng.normal(0, 0.05, (ROWS, COLS)).astype(np.float32)
    x[0, ::37] *= 8
    x[1] = 0
    x[2] = np.abs(x[2]) + 0.01
    return x


def codecs():
    rng = np.random.default_rng(14)
    w = gguf.GGUFWriter(OUT / "codecs.gguf", "llama")
    want = {}
    for kind in DECODED:
        blocks = random_blocks(rng, kind)
        view = blocks.view(np.float16) if kind == T.F16 else blocks
        w.add_tensor(f"decode.{kind.name}", view, raw_dtype=kind)
        want[f"decode.{kind.name}"] = gguf.quants.dequantize(view, kind).reshape(ROWS, COLS).astype(np.float32)
    x = values(rng)
    want["x"] = x
    for kind in ENCODED:
        w.add_tensor(f"encode.{kind.name}", gguf.quants.quantize(x, kind), raw_dtype=kind)
    for kind in SEARCHED:
        blocks = subprocess.run([sys.argv[1], str(int(kind))], input=x.tobytes(), stdout=subprocess.PIPE, check=True).stdout
        w.add_tensor(f"llama.{kind.name}", np.frombuffer(blocks, np.uint8).reshape(ROWS, -1), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    save_file(want, OUT / "codecs.safetensors")


def read_only():
    rng = np.random.default_rng(28)
    w = gguf.GGUFWriter(OUT / "codecs_read.gguf", "llama")
    want = {}
    for kind in READ:
        blocks = random_blocks(rng, kind)
        if kind == T.MXFP4:  # every exponent from that of a subnormal on, none that overflows
            blocks.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])[:, 0] = rng.integers(0, 240, ROWS * COLS // 32)
        w.add_tensor(f"decode.{kind.name}", blocks, raw_dtype=kind)
        want[f"decode.{kind.name}"] = gguf.quants.dequantize(blocks, kind).reshape(ROWS, COLS).astype(np.float32)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    save_file(want, OUT / "codecs_read.safetensors")


def values_file():
    """Every type of value, and tensors of one to three dimensions."""
    w = gguf.GGUFWriter(OUT / "values.gguf", "llama")
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -3)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -300)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -70000)
    w.add_uint64("t.u64", 1 << 40)
    w.add_int64("t.i64", -(1 << 40))
    w.add_float32("t.f32", 0.1)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.text", "h\u00e9llo")
    w.add_array("t.texts", ["a", "", "\u2581the"])
    w.add_array("t.ints", [1, -2, 3])
    w.add_array("t.floats", [0.5, -1.5])
    w.add_tensor("one", np.arange(5, dtype=np.float32))
    w.add_tensor("two", np.arange(6, dtype=np.float16).reshape(2, 3))
    w.add_tensor("three", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


OUT.mkdir(exist_ok=True)
read_only()
if sys.argv[1] != "--read-only":
    codecs()
    values_file()
