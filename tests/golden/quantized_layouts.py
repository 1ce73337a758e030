#!/usr/bin/env python3
"""Folders of a tiny Llama in further layouts that are legal, in data/quantized/<name>/ beside those of quantized_folders.py.

    /path/to/python tests/golden/quantized_layouts.py [NAME ...]   # needs torch, transformers, compressed-tensors

Each folder has what those of quantized_folders.py have, and is read by the same test. Codes and scales are drawn at random: how
they came about does not matter for reading. The numbers that the logits come from are decoded by

  ct_*         compressed-tensors 0.20.1: decompress() of the compressor that its own registry has for the format
  fp8_*        transformers 5.24: Fp8Dequantize
  modelopt_*   weight * weight_scale (NVIDIA's ModelOpt 0.47, quant_utils.from_quantized_weight), and for NVFP4 the E2M1 table
  gptq_*       GPTQModel 7.7, nn_modules/qlinear/__init__.py: scales[g_idx] * (weight - zeros[g_idx])
  awq_*        GPTQModel 7.7, quantization/awq/utils/packing_utils.py: dequantize_gemm
  bnb_*        bitsandbytes' formulas: table[code] * absmax of the block; CB * SCB / 127
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

OUT = pathlib.Path(__file__).parent / "data" / "quantized"
TOKENS = torch.tensor([[(7 * i * i + 3 * i) % 61 + 3 for i in range(11)]])
E4M3 = torch.float8_e4m3fn
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
NF4 = torch.tensor([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                    0.7229568362236023, 1.0])


def base(tied):
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=tied, dtype="bfloat16",
                         initializer_range=0.2, bos_token_id=1, eos_token_id=2)
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def write(name, config, convert, keep=(), tied=True, also=(), beside=None):
    """A folder whose linear layers convert(key, w f32) -> ({suffix or ../name: tensor}, decoded f32) stores. also: further keys
    that are converted; beside: (file, content) instead of quantization_config in config.json."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as plain:
        base(tied).save_pretrained(plain)
        torch.manual_seed(sum(map(ord, name)))
        text = json.loads((pathlib.Path(plain) / "config.json").read_text())
        state = load_file(pathlib.Path(plain) / "model.safetensors")
        if beside is None:
            text["quantization_config"] = config
        else:
            (folder / beside).write_text(json.dumps(config, indent=2) + "\n")
        (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
        planes, decoded = {}, {}
        for key, value in state.items():
            made = None
            if (key.endswith("proj.weight") and not any(k in key for k in keep)) or key in also:
                made = convert(key, value.float())
            if made is None:
                planes[key] = value
                continue
            decoded[key] = made[1].float()
            for suffix, tensor in made[0].items():
                at = key[: key.rindex(".") + 1] + suffix[3:] if suffix.startswith("../") else key + suffix
                planes[at] = tensor.contiguous()
        save_file(planes, folder / "model.safetensors", metadata={"format": "pt"})
        m = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32, attn_implementation="eager").eval()
    state = m.state_dict()
    for key, value in decoded.items():
        assert state[key].shape == value.shape, key
        state[key].copy_(value)
    with torch.no_grad():
        logits = m(TOKENS).logits
    save_file({"tokens": TOKENS.to(torch.int32), "logits": logits.contiguous()}, folder / "golden.safetensors")
    print(name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def codes_fp8(w):
    """Codes of w and the scale of a tensor, as any program may have chosen them."""
    scale = w.abs().max() / 448
    return (w / scale).to(E4M3), scale


# ---- compressed-tensors ----

def ct(layout, group, status="compressed", ignore=("lm_head",), **more):
    groups = {"group_0": group} if "targets" in group else group
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": status, "config_groups": groups,
            "ignore": list(ignore), "kv_cache_scheme": None, "global_compression_ratio": None, **more}


def scheme(targets=("Linear",), fmt=None, **weights):
    """A group as compressed-tensors' own to_dict() gives it, with every key that it has."""
    made = QuantizationScheme(targets=list(targets), weights=dict(weights)).model_dump(mode="json")
    made["format"] = fmt
    return made


def decompressed(layout, group, state):
    compressor = BaseCompressor.get_value_from_registry(layout)
    args = QuantizationScheme(**{k: v for k, v in group.items() if k != "format"})
    wide = {k: v.float() if k == "weight_scale" and v.dtype != torch.uint8 else v for k, v in state.items()}
    return compressor.decompress(wide, args)["weight"]


def suffixes(state):
    return {k.removeprefix("weight"): v for k, v in state.items()}


def ct_float(layout, group, scale_dtype=torch.float32):
    def convert(_, w):
        codes, one = codes_fp8(w)
        weights = group["weights"]
        shape = {"tensor": (1,), "channel": (w.shape[0], 1)}.get(weights["strategy"])
        if shape is None:
            h, v = weights["block_structure"]
            shape = (-(-w.shape[0] // h), -(-w.shape[1] // v))
        scale = (one * (0.5 + torch.rand(shape))).to(scale_dtype)
        state = {"weight": codes, "weight_scale": scale}
        return suffixes(state), decompressed(layout, group, state)
    return convert


def ct_int(layout, group, scale_dtype=torch.bfloat16):
    """Random codes, scales and zero points, packed by compressed-tensors' own functions."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    weights = group["weights"]
    bits = weights["num_bits"]

    def convert(_, w):
        rows, cols = w.shape
        n = {"tensor": 1, "channel": 1}.get(weights["strategy"]) or cols // weights["group_size"]
        shape = (1,) if weights["strategy"] == "tensor" else (rows, n)
        top = 2 ** (bits - 1)
        codes = torch.randint(-top, top, w.shape, dtype=torch.int8)
        scale = ((0.5 + torch.rand(shape)) * 0.3 / top).to(scale_dtype)
        zero = torch.randint(-top, top, shape, dtype=torch.int8)
        state = {"weight_scale": scale}
        if layout == "pack-quantized":
            state["weight_packed"] = pack_to_int32(codes, bits)
            state["weight_shape"] = torch.tensor(w.shape)
            if not weights["symmetric"]:
                state["weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0).contiguous()
        else:
            state["weight"] = codes
            if not weights["symmetric"]:
                state["weight_zero_point"] = zero
        return suffixes(state), decompressed(layout, group, state)
    return convert


FLOAT8 = dict(num_bits=8, type="float", symmetric=True, dynamic=False)


def ct_folders():
    row = scheme(strategy="channel", **FLOAT8)
    yield "ct_null_format", ct("float-quantized", row), ct_float("float-quantized", row, torch.bfloat16)
    one = scheme(strategy="tensor", **FLOAT8)
    yield "ct_naive_frozen", ct("naive-quantized", one, status="frozen"), ct_float("naive-quantized", one)
    block = scheme(strategy="block", block_structure=[128, 128], **FLOAT8)
    yield "ct_fp8_block", ct("float-quantized", block), ct_float("float-quantized", block, torch.bfloat16)
    # the class comes first in the file and last in the order of targets
    narrow = scheme(targets=["re:.*mlp\\.down.*"], strategy="tensor", **FLOAT8)
    name = scheme(targets=["model.layers.0.mlp.up_proj"], strategy="block", block_structure=[32, 32], **FLOAT8)
    groups = {"group_0": row, "group_1": narrow, "group_2": name}

    def by_target(key, w):
        group = narrow if "down" in key else name if "up_proj" in key else row
        return ct_float("float-quantized", group)(key, w)
    yield "ct_targets", ct("float-quantized", groups), by_target


def ct_int_folders():
    w4 = scheme(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    yield "ct_w4a16", ct("pack-quantized", w4), ct_int("pack-quantized", w4)
    w4z = scheme(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False)
    yield "ct_w4a16_zeros", ct("pack-quantized", w4z), ct_int("pack-quantized", w4z, torch.float16)
    w3 = scheme(num_bits=3, type="int", strategy="channel", symmetric=True)
    yield "ct_w3a16", ct("pack-quantized", w3), ct_int("pack-quantized", w3, torch.float32)
    w8 = scheme(num_bits=8, type="int", strategy="channel", symmetric=True)
    yield "ct_w8a16", ct("pack-quantized", w8), ct_int("pack-quantized", w8)
    yield "ct_w8a8", ct("int-quantized", w8), ct_int("int-quantized", w8)
    w8t = scheme(num_bits=8, type="int", strategy="tensor", symmetric=False)
    yield "ct_naive_int", ct("naive-quantized", w8t), ct_int("naive-quantized", w8t, torch.float32)


# ---- fp8 of transformers ----

def fp8_dequantized(codes, scale):
    return Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)


def fp8_scalar(_, w):
    codes, scale = codes_fp8(w)
    return {"": codes, "_scale_inv": scale.to(torch.bfloat16), "../activation_scale": torch.tensor(0.5)}, \
        fp8_dequantized(codes, scale.to(torch.bfloat16))


def fp8_blocks(rows, cols, dtype):
    def convert(_, w):
        codes, one = codes_fp8(w)
        shape = (w.shape[0] // rows, w.shape[1] // cols)
        exponents = torch.floor(torch.log2(one * (0.5 + torch.rand(shape))))
        scale = torch.pow(2.0, exponents)
        stored = (exponents + 127).to(torch.uint8) if dtype == torch.uint8 else scale.to(dtype)
        return {"": codes, "_scale_inv": stored}, fp8_dequantized(codes, stored)
    return convert


def fp8_folders():
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": ["lm_head"]}
    yield "fp8_scalar", {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
                         "modules_to_not_convert": ["lm_head"]}, fp8_scalar
    yield "fp8_ue8m0", {**fp8, "scale_fmt": "ue8m0", "weight_block_size": [32, 64]}, fp8_blocks(32, 64, torch.float8_e8m0fnu)
    yield "fp8_ue8m0_bytes", {**fp8, "scale_fmt": "ue8m0", "weight_block_size": [1, 32]}, fp8_blocks(1, 32, torch.uint8)


# ---- ModelOpt ----

def modelopt_fp8(_, w):
    codes, scale = codes_fp8(w)
    return {"": codes, "_scale": scale, "../input_scale": torch.tensor(0.25)}, codes.float() * scale


def modelopt_nvfp4(_, w):
    code = torch.randint(0, 16, w.shape)
    block = (0.5 + torch.rand(w.shape[0], w.shape[1] // 16)).mul(40).to(E4M3)
    whole = torch.tensor(0.001)
    back = (E2M1[code].view(w.shape[0], -1, 16) * (whole * block.float()).unsqueeze(-1)).view(w.shape)
    return {"": ((code[:, 1::2] << 4) | code[:, 0::2]).to(torch.uint8), "_scale": block, "_scale_2": whole}, back


def modelopt_folders():
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "dynamic": False}}
    end = {"producer": {"name": "modelopt", "version": "0.47.0"}, "quant_method": "modelopt"}
    yield "modelopt_fp8", {"config_groups": {"group_0": group}, "ignore": ["lm_head"], "quant_algo": "FP8", **end}, modelopt_fp8
    four = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "dynamic": False, "group_size": 16}}
    yield "modelopt_w4a16", {"config_groups": {"group_0": four}, "ignore": ["lm_head*"], "quant_algo": "W4A16_NVFP4", **end}, \
        modelopt_nvfp4
    layers = {f"model.layers.0.{n}": {"quant_algo": "FP8"} for n in ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")}
    layers |= {f"model.layers.0.mlp.{n}": {"quant_algo": "NVFP4", "group_size": 16} for n in ("gate_proj", "up_proj")}

    def mixed(key, w):
        kind = layers.get(key.removesuffix(".weight"), {}).get("quant_algo")
        return None if kind is None else (modelopt_fp8 if kind == "FP8" else modelopt_nvfp4)(key, w)
    yield "modelopt_mixed", {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": ["lm_head"], **end}, mixed


# ---- gptq, awq ----

def bit_stream(codes, bits):
    """Codes [n, m] -> words [n * bits / 32, m]: the bits of a column, one code after another, lowest first."""
    n, m = codes.shape
    flat = ((codes.long()[:, None, :] >> torch.arange(bits)[None, :, None]) & 1).reshape(n * bits // 32, 32, m)
    words = (flat << torch.arange(32)[None, :, None]).sum(1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def gptq(bits=4, group=32, symmetric=True, version=2, dtype=torch.float16):
    def convert(_, w):
        rows, cols = w.shape
        size = cols if group < 0 else group
        codes = torch.randint(0, 2**bits, (cols, rows))
        groups = torch.arange(cols) // size
        scales = ((0.5 + torch.rand(cols // size, rows)) * 0.6 / 2**bits).to(dtype)
        zeros = torch.full_like(scales, 2 ** (bits - 1)).int() if symmetric else torch.randint(1, 2**bits, scales.shape)
        back = scales.float()[groups] * (codes - zeros[groups])
        return {"../qweight": bit_stream(codes, bits), "../qzeros": bit_stream((zeros - int(version == 1)).T, bits).T,
                "../scales": scales, "../g_idx": groups.int()}, back.T
    return convert


def along(codes):
    """AWQ's words: eight outputs in the order 0 2 4 6 1 3 5 7."""
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    parts = codes.long().view(codes.shape[0], -1, 8)[:, :, order]
    words = (parts << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def awq(_, w):
    rows, cols = w.shape
    codes = torch.randint(0, 16, (cols, rows))
    scales = ((0.5 + torch.rand(cols // 32, rows)) * 0.04).to(torch.bfloat16)
    zeros = torch.full((cols // 32, rows), 8)
    back = (codes - zeros.repeat_interleave(32, 0)) * scales.float().repeat_interleave(32, 0)
    return {"../qweight": along(codes), "../qzeros": along(zeros), "../scales": scales}, back.T


def gptq_folders():
    head = {"bits": 4, "group_size": 32, "desc_act": False, "sym": True, "lm_head": False, "quant_method": "gptq",
            "pack_dtype": "int32", "meta": {"quantizer": ["gptqmodel:7.7.0"]}}
    yield "gptq_format_v2", {**head, "format": "gptq_v2"}, gptq()
    dynamic = {"+:.*\\.mlp\\.up_proj": {"bits": 8, "group_size": 64}, "-:.*\\.down_proj": {},
               "self_attn\\.q_proj$": {"bits": 2}, ".*self_attn\\.o_proj": {"sym": False, "bits": 3, "group_size": -1}}

    def by_pattern(key, w):  # the third pattern matches from the beginning on, so no layer
        if "down_proj" in key:
            return None
        if "up_proj" in key:
            return gptq(8, 64)(key, w)
        return (gptq(3, -1, symmetric=False) if "o_proj" in key else gptq())(key, w)
    yield "gptq_dynamic", {**head, "checkpoint_format": "gptq_v2", "format": "gptq_v2", "dynamic": dynamic}, by_pattern
    yield "awq_bf16", {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": False, "version": "GEMM",
                       "format": "gemm", "checkpoint_format": "gemm", "sym": True, "modules_to_not_convert": None}, awq


# ---- bitsandbytes ----

def nf4(block, double=False, dtype="bfloat16"):
    def convert(_, w):
        n = w.numel()
        codes = torch.randint(0, 16, (n,))
        blocks = -(-n // block)
        absmax = 0.2 + 0.4 * torch.rand(blocks)
        state = {"quant_type": "nf4", "blocksize": block, "dtype": dtype, "shape": list(w.shape)}
        planes = {"": ((codes[0::2] << 4) | codes[1::2]).to(torch.uint8).view(-1, 1), ".quant_map": NF4.clone(), ".absmax": absmax}
        if double:
            offset, table = float(absmax.mean()), torch.linspace(-1, 1, 256)
            tops = 0.2 + torch.rand(-(-blocks // 256))
            packed = torch.randint(0, 256, (blocks,), dtype=torch.uint8)
            absmax = table[packed.long()] * tops.repeat_interleave(256)[:blocks] + offset
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
            planes |= {".absmax": packed, ".nested_absmax": tops, ".nested_quant_map": table}
        planes[".quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        return planes, (NF4[codes] * absmax.repeat_interleave(block)[:n]).view(w.shape)
    return convert


def bnb8(_, w):
    codes, scales = torch.randint(-127, 128, w.shape, dtype=torch.int8), 0.2 + torch.rand(w.shape[0])
    return {"": codes, "../SCB": scales, "../weight_format": torch.tensor(0, dtype=torch.uint8)}, \
        codes.float() * scales.view(-1, 1) * (1 / 127)


def bnb_config(bits, double=False):
    return {"quant_method": "bitsandbytes", "load_in_4bit": bits == 4, "load_in_8bit": bits == 8, "_load_in_4bit": bits == 4,
            "_load_in_8bit": bits == 8, "bnb_4bit_quant_type": "nf4" if bits == 4 else "fp4",
            "bnb_4bit_use_double_quant": double, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
            "llm_int8_threshold": 6.0, "llm_int8_skip_modules": None, "llm_int8_enable_fp32_cpu_offload": False,
            "llm_int8_has_fp16_weight": False}


def bnb_folders():
    yield "bnb_nf4_128", bnb_config(4), nf4(128)
    yield "bnb_nf4_256_nested", bnb_config(4, True), nf4(256, True)


# ---- a head of its own, and the embedding ----

def head_folders():
    head = dict(tied=False, also=("lm_head.weight",))
    yield "head_gptq", {"bits": 4, "group_size": 32, "desc_act": False, "sym": True, "lm_head": True, "quant_method": "gptq",
                        "checkpoint_format": "gptq", "pack_dtype": "int32"}, gptq(version=1), head
    skip = {"llm_int8_skip_modules": ["down_proj"]}
    yield "head_nf4", {**bnb_config(4), **skip}, nf4(64), {**head, "keep": ("down_proj",)}
    yield "head_int8", {**bnb_config(8), **skip}, bnb8, {**head, "keep": ("down_proj",)}
    row = scheme(targets=["Linear", "Embedding"], strategy="channel", **FLOAT8)
    both = dict(tied=False, also=("lm_head.weight", "model.embed_tokens.weight"))
    yield "head_ct", ct("float-quantized", row, ignore=[]), ct_float("float-quantized", row), both


# ---- the configuration in a file of its own ----

def beside_folders():
    yield "beside_gptq", {"bits": 4, "group_size": 32, "desc_act": False, "sym": True, "damp_percent": 0.01,
                          "true_sequential": True, "model_name_or_path": None}, gptq(version=1), \
        dict(beside="quantize_config.json")
    yield "beside_modelopt", {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": {
        "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, modelopt_fp8, \
        dict(beside="hf_quant_config.json")


def main():
    torch.use_deterministic_algorithms(True)
    for made in (ct_folders, ct_int_folders, fp8_folders, modelopt_folders, gptq_folders, bnb_folders, head_folders,
                 beside_folders):
        for name, config, convert, *more in made():
            if len(sys.argv) == 1 or name in sys.argv[1:]:
                write(name, config, convert, **(more[0] if more else {}))


if __name__ == "__main__":
    main()
