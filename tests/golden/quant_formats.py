#!/usr/bin/env python3
"""Golden planes and decoded values of fp8, mxfp4, nvfp4, eetq and hqq: data/quant_formats.txt.

    python3 tests/golden/quant_formats.py   # needs torch, transformers, compressed-tensors, hqq, bitsandbytes (quant.py)

fp8 in blocks comes from transformers' FineGrained FP8, the other settings of fp8, mxfp4 and nvfp4 from
compressed-tensors, hqq from hqq. EETQ has no package on PyPI: its two functions are written down here in NumPy from
NetEase-FuXi/EETQ 465e972, csrc/cutlass_kernels/cutlass_preprocessors.cc (symmetric_quantize_helper,
permute_B_rows_for_mixed_gemm, subbyte_transpose, interleave_column_major_tensor,
add_bias_and_interleave_int8s_inplace), step by step. ModelOpt's NVFP4 is written down from nvidia-modelopt 0.47,
modelopt/torch/quantization/qtensor/nvfp4_tensor.py, which has many dependencies.

Each case, with the weights of quant.py:
    case <format> <seed> <rows> <cols> <key=value, or -> <planes>
    plane <bytes> <hex>            as stored in files, in the order of the plugin's planes
    f32, bf16, f16 <FNV-1a 64>     of the decoded bytes; "-": the reference does not decode to it
    mse <mean squared error>       of the decoded f32 values
"""
import pathlib
import types

import numpy as np
import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from hqq.core.quantize import Quantizer
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

import quant

OUT = pathlib.Path(__file__).parent / "data" / "quant_formats.txt"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def raw(t):
    if t.dtype in (torch.bfloat16, torch.float16):
        t = t.view(torch.int16)
    if t.dtype == torch.float8_e4m3fn:
        t = t.view(torch.uint8)
    return t.contiguous().numpy().tobytes()


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


def case(name, seed, w, setting, planes, decoded):
    rows, cols = w.shape
    text = f"case {name} {seed} {rows} {cols} {setting or '-'} {len(planes)}\n"
    for plane in planes:
        data = raw(plane)
        text += f"plane {len(data)} {data.hex()}\n"
    for dtype in DTYPES:
        text += f"{dtype} {fnv(raw(decoded[dtype])) if dtype in decoded else '-'}\n"
    error = ((decoded["f32"].double() - w.double()) ** 2).mean().item()
    return text + f"mse {error:.9e}\n"


def fp8_block(seed, rows, cols):
    w = quant.weights(seed, rows, cols)
    config = types.SimpleNamespace(weight_block_size=(128, 128), scale_fmt=None)
    up = [-n % 128 for n in (rows, cols)]
    padded = torch.nn.functional.pad(w, (0, up[1], 0, up[0]))
    made = Fp8Quantize(types.SimpleNamespace(quantization_config=config))._quantize_one("m.weight", padded)
    codes, scale = made["m.weight"], made["m.weight_scale_inv"]
    back = Fp8Dequantize(None)
    decoded = {k: back._dequantize_one(codes, scale, d)[:rows, :cols] for k, d in DTYPES.items()}
    return case("fp8", seed, w, "scaling=block", [codes[:rows, :cols], scale], decoded)


def scheme(**args):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(type="float", symmetric=True, **args))


def fp8(seed, rows, cols, scaling):
    w = quant.weights(seed, rows, cols)
    s = scheme(num_bits=8, strategy="channel" if scaling == "row" else "tensor")
    if scaling == "row":
        low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    else:
        low, high = w.amin(), w.amax()
    scale, _ = calculate_qparams(low, high, s.weights)
    state = FloatQuantizationCompressor.compress({"weight": w, "weight_scale": scale}, s)
    value = FloatQuantizationCompressor.decompress(state, s)["weight"]
    decoded = {k: value.to(d) for k, d in DTYPES.items()}
    return case("fp8", seed, w, f"scaling={scaling}", [state["weight"], state["weight_scale"]], decoded)


def fp4(name, compressor, seed, rows, cols, setting, s, global_scale):
    w = quant.weights(seed, rows, cols)
    groups = w.unflatten(-1, (-1, s.weights.group_size))
    g = generate_gparam(w.min(), w.max()) if global_scale else None
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), s.weights, global_scale=g)
    state = {"weight": w, "weight_scale": scale}
    if global_scale:
        state["weight_global_scale"] = g
    state = compressor.compress(state, s)
    planes = [state["weight_packed"], state["weight_scale"]]
    planes += [g] if global_scale else []
    bf16 = compressor.decompress(state, s)["weight"]
    assert bf16.dtype == torch.bfloat16
    codes = unpack_fp4_from_uint8(state["weight_packed"], rows, cols, torch.float32)
    wide = compressor._decompress_scale(state["weight_scale"], torch.float32)
    f32 = dequantize(x_q=codes, scale=wide, args=s.weights, global_scale=g, dtype=torch.float32)
    decoded = {"f32": f32, "bf16": bf16, "f16": f32.half()}
    return case(name, seed, w, setting, planes, decoded)


def mxfp4(seed, rows, cols):
    s = scheme(num_bits=4, strategy="group", group_size=32, scale_dtype=torch.uint8, zp_dtype=torch.uint8)
    return fp4("mxfp4", MXFP4PackedCompressor, seed, rows, cols, "scale_rounding=nearest", s, False)


def nvfp4(seed, rows, cols):
    e4m3 = torch.float8_e4m3fn
    s = scheme(num_bits=4, strategy="tensor_group", group_size=16, scale_dtype=e4m3, zp_dtype=e4m3)
    return fp4("nvfp4", NVFP4PackedCompressor, seed, rows, cols, "layout=compressed-tensors", s, True)


def nvfp4_modelopt(seed, rows, cols):
    w = quant.weights(seed, rows, cols)
    g = w.abs().max() / (6.0 * 448.0)
    groups = w.view(rows, -1, 16)
    per_block = groups.abs().amax(-1) / (6.0 * g)
    per_block[per_block == 0] = 1.0
    per_block = per_block.clamp(min=2.0**-9, max=448.0).to(torch.float8_e4m3fn)
    scaled = groups / (per_block.float() * g).unsqueeze(-1)
    magnitude = scaled.abs().unsqueeze(-1)
    bounds = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    odd = torch.tensor([0.75, 1.75, 3.5])
    code = torch.sum((magnitude - bounds) > 0, -1) + torch.sum(magnitude == odd, -1)
    code = (code + 8 * (scaled < 0)).to(torch.uint8).view(rows, cols)
    packed = (code[:, 1::2] << 4) | code[:, 0::2]
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    f32 = (values[code.long()].view(rows, -1, 16) * (g * per_block.float()).unsqueeze(-1)).view(rows, cols)
    decoded = {k: f32.to(d) for k, d in DTYPES.items()}
    return case("nvfp4", seed, w, "layout=modelopt", [packed, per_block, g.reshape(1)], decoded)


def eetq_quantize(w):
    """w f32 [in, out] -> codes int8 [in, out], scales f16 [out]."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(w).max(0) * np.float32(1 / 128)
        x = (w / largest).astype(np.float64)
        x = np.trunc(x + np.copysign(0.5, x))
        x = np.where(x < 127.0, x, 127.0)  # std::min(127.f, x): 127 for NaN
        x = np.where(-128.0 < x, x, -128.0)
    return x.astype(np.int8), largest.astype(np.float16)


def eetq_preprocess(q):
    n_rows, n_cols = q.shape
    permuted = np.empty_like(q)
    for base in range(0, n_rows, 16):
        for tile_row in range(16):
            permuted[base + tile_row] = q[base + 8 * (tile_row % 4 // 2) + tile_row % 2 + 2 * (tile_row // 4)]
    words = np.ascontiguousarray(permuted.T).view(np.int32)  # column major, four codes each
    n_words, out = n_rows // 4, np.empty(n_rows * n_cols // 4, np.int32)
    per_tile, interleave = 64 // 4, 2
    for col in range(n_cols):
        for base in range(0, n_words, per_tile):
            for row in range(base, min(n_words, base + per_tile)):
                to = interleave * base + per_tile * (col % interleave) + row % per_tile
                out[col // interleave * n_words * interleave + to] = words[col, row]
    out = (out.view(np.int8).astype(np.int32) + 128).astype(np.uint8).reshape(-1, 4)
    out = np.ascontiguousarray(out[:, [0, 2, 1, 3]])
    return out.view(np.int8).reshape(n_rows, n_cols)


def eetq(seed, rows, cols):
    w = quant.weights(seed, rows, cols)
    q, scales = eetq_quantize(w.numpy().T.copy())
    f32 = torch.from_numpy((q.astype(np.float32) * scales.astype(np.float32)).T.copy())
    half = torch.from_numpy((q.astype(np.float16) * scales).T.copy())  # the kernel multiplies in f16
    planes = [torch.from_numpy(eetq_preprocess(q)), torch.from_numpy(scales)]
    return case("eetq", seed, w, "", planes, {"f32": f32, "bf16": f32.bfloat16(), "f16": half})


def hqq(seed, rows, cols, bits, compute_dtype, group=64):
    w = quant.weights(seed, rows, cols)
    codes, meta = Quantizer.quantize(w, nbits=bits, group_size=group, axis=1, device="cpu")
    meta["compute_dtype"] = getattr(torch, compute_dtype)
    codes, meta = Quantizer.to_inplace(codes, meta, device="cpu")
    value = Quantizer.dequantize(codes, meta)
    assert value.dtype == meta["compute_dtype"]
    decoded = {k: value.to(d) for k, d in DTYPES.items()}
    setting = f"bits={bits},group_size={group},compute_dtype={compute_dtype}"
    return case("hqq", seed, w, setting, [codes, meta["scale"], meta["zero"]], decoded)


def main():
    text = f"# torch {torch.__version__}, tests/golden/quant_formats.py\n"
    for seed, rows, cols, scaling in ((1, 4, 64, "row"), (2, 5, 77, "row"), (2, 5, 77, "tensor"), (8, 1, 1, "tensor")):
        text += fp8(seed, rows, cols, scaling)
    for seed, rows, cols in ((3, 3, 7), (4, 130, 131), (5, 1, 1)):
        text += fp8_block(seed, rows, cols)
    for seed, rows, cols in ((1, 4, 64), (2, 7, 96), (9, 64, 32), (6, 3, 544)):
        text += mxfp4(seed, rows, cols)
        text += nvfp4(seed, rows, cols)
        text += nvfp4_modelopt(seed, rows, cols)
    for seed, rows, cols in ((1, 4, 64), (2, 6, 192), (7, 8, 640)):
        text += eetq(seed, rows, cols)
    for bits, dtype in ((1, "float16"), (2, "bfloat16"), (3, "float16"), (4, "float16"), (4, "bfloat16"), (8, "float32")):
        text += hqq(bits, 8, 192, bits, dtype)
    text += hqq(9, 6, 64, 4, "float32", 32)
    text += hqq(9, 7, 128, 3, "float32")
    OUT.write_text(text)


if __name__ == "__main__":
    main()
