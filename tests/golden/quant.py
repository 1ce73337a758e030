#!/usr/bin/env python3
"""Golden codes and scales of NF4 and int8 from bitsandbytes' reference ("default") backend.

bitsandbytes' own CPU library is kept from loading: its 8-bit quantize_blockwise looks codes up with an
approximation (seen in 0.50.2: near 0 up to 4 codes off), while the reference takes midpoints of
the map. For 4-bit codes and for decoding the script checks that both backends give the same bits.

The weights come from a formula that quant_weights.h repeats, exact in f32. Writes data/quant.txt:
    nf4 <seed> <rows> <cols> <double_quant>
    bytes <hex>; then absmax, nested_absmax, offset, map, nested_map as hex of little-endian bytes ("-":
    absent); f32, bf16: FNV-1a 64 of the decoded bytes
    int8 <seed> <rows> <cols>: codes, scb, f32, bf16
"""
import os
import pathlib
import subprocess
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"
if "native" not in sys.argv:
    import ctypes

    load = ctypes.cdll.LoadLibrary

    def refuse(name):
        if "libbitsandbytes" in str(name):
            raise OSError("kept from loading")
        return load(name)

    ctypes.cdll.LoadLibrary = refuse

import bitsandbytes  # noqa: E402
import bitsandbytes.functional as F  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

OUT = pathlib.Path(__file__).parent / "data" / "quant.txt"


def weights(seed, rows, cols):
    n = rows * cols
    x = np.empty(n, dtype=np.uint64)
    state = seed
    for i in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        x[i] = state
    u = (x >> 8).astype(np.float64) / 2**24 - 0.5
    i = np.arange(n)
    block = i // 64
    w = u * 2.0 ** ((block * 7) % 9 - 6)
    w[i % 997 == 5] *= 64.0
    w[block == 3] = 0.0
    out = w.astype(np.float32)
    assert (out.astype(np.float64) == w).all()
    return torch.from_numpy(out.reshape(rows, cols))


def fnv(t):
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    h = 0xCBF29CE484222325
    for b in t.contiguous().numpy().tobytes():
        h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


def hexed(t):
    return t.contiguous().numpy().tobytes().hex() if t is not None else "-"


def nf4(seed, rows, cols, nested):
    w = weights(seed, rows, cols)
    q, s = F.quantize_4bit(w, quant_type="nf4", blocksize=64, compress_statistics=nested)
    text = f"nf4 {seed} {rows} {cols} {int(nested)}\n"
    text += f"bytes {hexed(q)}\nabsmax {hexed(s.absmax)}\n"
    text += f"nested_absmax {hexed(s.state2.absmax if nested else None)}\n"
    text += f"offset {hexed(s.offset.reshape(1) if nested else None)}\n"
    text += f"map {hexed(s.code)}\nnested_map {hexed(s.state2.code if nested else None)}\n"
    for dtype in (torch.float32, torch.bfloat16):
        s.dtype = dtype
        text += f"{'f32' if dtype == torch.float32 else 'bf16'} {fnv(F.dequantize_4bit(q, s).to(dtype))}\n"
    return text


def int8(seed, rows, cols):
    q, scb, _ = F.int8_vectorwise_quant(weights(seed, rows, cols))
    back = F.int8_vectorwise_dequant(q, scb)
    return (f"int8 {seed} {rows} {cols}\ncodes {hexed(q)}\nscb {hexed(scb)}\n"
            f"f32 {fnv(back)}\nbf16 {fnv(back.to(torch.bfloat16))}\n")


def everything():
    text = f"# bitsandbytes {bitsandbytes.__version__} torch {torch.__version__}, default backend\n"
    for case in ((1, 2, 64, False), (2, 5, 77, False), (3, 3, 7, False), (1, 1, 1, False),
                 (4, 8, 40, True), (5, 131, 129, True), (6, 256, 64, True), (7, 1, 1, True)):
        text += nf4(*case)
    for case in ((1, 4, 64), (2, 5, 77), (8, 1, 1)):
        text += int8(*case)
    return text


def main():
    if "native" in sys.argv:
        print(everything())
        return
    text = everything()
    native = subprocess.run([sys.executable, __file__, "native"], capture_output=True, text=True).stdout
    for ours, theirs in zip(text.splitlines(), native[native.index("# bits"):].splitlines()):
        if ours != theirs:
            print("the CPU library differs:", ours[:70], "|", theirs[:70])
    OUT.write_text(text)


if __name__ == "__main__":
    main()
