#!/usr/bin/env python3
"""Folders of a tiny Llama in the layouts of quantized weights that Lathe reads: data/quantized/<name>/.

    /path/to/python tests/golden/quantized_folders.py   # needs torch, transformers, bitsandbytes, compressed-tensors, hqq

  config.json          with its quantization_config
  model.safetensors    with the planes as the reference library stores them
  golden.safetensors   logits f32 [1,T,V] of the decoded weights in fp32, and the row of tokens

bnb_* are written by transformers with bitsandbytes, and so are gpt2_*, of a tiny GPT-2; fp8_block's planes by transformers' FineGrained FP8; ct_* by the
compressors of compressed-tensors; hqq by hqq's quantizer under the names of its HQQLinear; modelopt_nvfp4 and eetq by the
functions of quant_formats.py; gptq_* are packed here as GPTQModel's source packs. mixed_ct has two groups: attention in FP8 rows,
the MLP in MXFP4, and one layer left as it is. gpt_oss_mxfp4 has random codes and scales under the names and with the config.json of
openai's folders; its golden.safetensors also has the experts, which transformers' convert_moe_packed_tensors decodes. The weights that the logits come from are decoded by the same library, or those
functions. data/quantized/awq is made by AutoAWQ itself, which needs a Python of its own: awq_folders.py.
"""
import json
import pathlib
import shutil
import types

import bitsandbytes.functional as bnb
import torch
from bitsandbytes.nn import Linear4bit, Linear8bitLt
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from hqq.core.quantize import Quantizer
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM,
                          LlamaConfig, LlamaForCausalLM)
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.pytorch_utils import Conv1D
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

import quant_formats as qf

OUT = pathlib.Path(__file__).parent / "data" / "quantized"
T = 11


def model():
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, dtype="bfloat16",
                         initializer_range=0.2, bos_token_id=1, eos_token_id=2)
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def gpt2():
    """Its layers are Conv1D, whose weights are [in, out]; bitsandbytes gets them as [out, in]."""
    torch.manual_seed(8)
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=64, n_layer=1, n_head=2, initializer_range=0.2, bos_token_id=1,
                        eos_token_id=2, dtype="bfloat16")
    return GPT2LMHeadModel(config).to(torch.bfloat16).eval()


BASE, BASE_GPT2 = OUT / "base", OUT / "base_gpt2"
TOKENS = torch.tensor([[(7 * i * i + 3 * i) % 61 + 3 for i in range(T)]])


def linears(state):
    return [k for k in state if k.endswith("proj.weight")]


def finish(name, folder, decoded, base=BASE):
    """golden.safetensors from the decoded weights {name: f32}."""
    m = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    state = m.state_dict()
    for key, value in decoded.items():
        value = value.T if isinstance(m.get_submodule(key.removesuffix(".weight")), Conv1D) else value
        assert state[key].shape == value.shape, key
        state[key].copy_(value)
    with torch.no_grad():
        logits = m(TOKENS).logits
    save_file({"tokens": TOKENS.to(torch.int32), "logits": logits.contiguous()}, folder / "golden.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    print(name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def bitsandbytes(name, config, decode, base=BASE):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    m = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, quantization_config=config)
    m.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    decoded = {k + ".weight": decode(v.weight) for k, v in m.named_modules() if isinstance(v, (Linear4bit, Linear8bitLt))}
    finish(name, folder, decoded, base)


def nf4(weight):
    state = weight.quant_state
    state.dtype = torch.float32
    packed = weight.data.view(torch.uint8) if weight.data.dtype != torch.uint8 else weight.data
    return bnb.dequantize_4bit(packed, state).float()


def int8(weight):
    return weight.CB.float() * weight.SCB.view(-1, 1) * (1.0 / 127.0)


def by_hand(name, config, convert, keep=()):
    """A folder whose linear layers convert(key, w f32) -> ({suffix or ../name: tensor}, decoded f32) stores."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = json.loads((BASE / "config.json").read_text())
    text["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    state = load_file(BASE / "model.safetensors")
    planes, decoded = {}, {}
    for key, value in state.items():
        if not key.endswith("proj.weight") or any(k in key for k in keep):
            planes[key] = value
            continue
        made, decoded[key] = convert(key, value.float())
        for suffix, tensor in made.items():
            at = key[: key.rindex(".") + 1] + suffix[3:] if suffix.startswith("../") else key + suffix
            planes[at] = tensor.contiguous()
    save_file(planes, folder / "model.safetensors", metadata={"format": "pt"})
    finish(name, folder, decoded)


def fp8_block(_, w):
    config = types.SimpleNamespace(weight_block_size=(128, 128), scale_fmt=None)
    rows, cols = w.shape
    padded = torch.nn.functional.pad(w, (0, -cols % 128, 0, -rows % 128))
    made = Fp8Quantize(types.SimpleNamespace(quantization_config=config))._quantize_one("m.weight", padded)
    codes, scale = made["m.weight"], made["m.weight_scale_inv"]
    back = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)[:rows, :cols]
    return {"": codes[:rows, :cols], "_scale_inv": scale}, back


def ct_fp8(strategy, scale_dtype):
    def convert(_, w):
        s = qf.scheme(num_bits=8, strategy=strategy)
        low, high = (w.amin(1, keepdim=True), w.amax(1, keepdim=True)) if strategy == "channel" else (w.amin(), w.amax())
        scale = calculate_qparams(low, high, s.weights)[0].to(scale_dtype)
        state = FloatQuantizationCompressor.compress({"weight": w, "weight_scale": scale.float()}, s)
        back = state["weight"].float() * scale.float()
        return {"": state["weight"], "_scale": scale.reshape(-1, 1) if strategy == "channel" else scale.reshape(1)}, back
    return convert


def ct_fp4(compressor, group, with_global, **args):
    def convert(_, w):
        s = qf.scheme(num_bits=4, group_size=group, **args)
        groups = w.unflatten(-1, (-1, group))
        g = generate_gparam(w.min(), w.max()) if with_global else None
        scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), s.weights, global_scale=g)
        state = {"weight": w, "weight_scale": scale}
        if with_global:
            state["weight_global_scale"] = g
        state = compressor.compress(state, s)
        codes = unpack_fp4_from_uint8(state["weight_packed"], *w.shape, torch.float32)
        wide = compressor._decompress_scale(state["weight_scale"], torch.float32)
        back = dequantize(x_q=codes, scale=wide, args=s.weights, global_scale=g, dtype=torch.float32)
        planes = {"_packed": state["weight_packed"], "_scale": state["weight_scale"]}
        if with_global:
            planes["_global_scale"] = g.reshape(1)
        return planes, back
    return convert


E4M3 = torch.float8_e4m3fn
MXFP4 = ct_fp4(MXFP4PackedCompressor, 32, False, strategy="group", scale_dtype=torch.uint8, zp_dtype=torch.uint8)
NVFP4 = ct_fp4(NVFP4PackedCompressor, 16, True, strategy="tensor_group", scale_dtype=E4M3, zp_dtype=E4M3)


def modelopt_nvfp4(_, w):
    g = w.abs().max() / (6.0 * 448.0)
    groups = w.view(w.shape[0], -1, 16)
    per_block = (groups.abs().amax(-1) / (6.0 * g)).clamp(min=2.0**-9, max=448.0).to(E4M3)
    scaled = groups / (per_block.float() * g).unsqueeze(-1)
    bounds = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    code = torch.sum((scaled.abs().unsqueeze(-1) - bounds) > 0, -1)
    code = (code + 8 * (scaled < 0)).to(torch.uint8).view(w.shape)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    back = (values[code.long()].view(w.shape[0], -1, 16) * (g * per_block.float()).unsqueeze(-1)).view(w.shape)
    return {"": (code[:, 1::2] << 4) | code[:, 0::2], "_scale": per_block, "_scale_2": g.reshape(())}, back


def hqq(_, w):
    codes, meta = Quantizer.quantize(w, nbits=4, group_size=32, axis=1, device="cpu")
    meta["compute_dtype"] = torch.bfloat16
    codes, meta = Quantizer.to_inplace(codes, meta, device="cpu")
    back = Quantizer.dequantize(codes, meta).float()
    return {"../W_q": codes, "../scale": meta["scale"], "../zero": meta["zero"], "../nbits": torch.tensor(4),
            "../group_size": torch.tensor(32), "../axis": torch.tensor(1), "../shape": torch.tensor(w.shape)}, back


def eetq(_, w):
    q, scales = qf.eetq_quantize(w.numpy().T.copy())
    back = torch.from_numpy((q.astype("float32") * scales.astype("float32")).T.copy())
    return {"": torch.from_numpy(qf.eetq_preprocess(q)), "_scales": torch.from_numpy(scales)}, back


def bit_stream(codes, bits):
    """Codes [n, m] -> words [n * bits / 32, m]: the bits of a column, one code after another, lowest first."""
    n, m = codes.shape
    flat = ((codes.long()[:, None, :] >> torch.arange(bits)[None, :, None]) & 1).reshape(n * bits // 32, 32, m)
    words = (flat << torch.arange(32)[None, :, None]).sum(1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def rounded(w, bits, group, symmetric, lowest_zero, order):
    """Codes [O, I], zero points and f16 scales [O, G], groups [I], and the decoded weight, with the inputs grouped in `order`."""
    o, i = w.shape
    groups = torch.empty(i, dtype=torch.int32)
    groups[order] = (torch.arange(i) // group).int()
    top, scales, zeros = 2**bits - 1, [], []
    for g in range(i // group):
        part = w[:, groups == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scale = ((high - low) / top).half()
        zeros.append(torch.full_like(low, 2 ** (bits - 1)) if symmetric else (-low / scale.float()).round().clamp(lowest_zero, top))
        scales.append(scale)
    scales, zeros = torch.stack(scales, 1), torch.stack(zeros, 1)
    s, z = scales.float()[:, groups.long()], zeros[:, groups.long()]
    codes = ((w / s).round() + z).clamp(0, top)
    return codes.int(), zeros.int(), scales, groups, (codes - z) * s


def gptq(bits, group, symmetric, act_order, version):
    """The packing of GPTQModel 7.7.0, gptqmodel/nn_modules/qlinear/__init__.py (dequantize_weight), as a stream of bits."""
    def convert(_, w):
        order = torch.randperm(w.shape[1], generator=torch.Generator().manual_seed(3)) if act_order else torch.arange(w.shape[1])
        codes, zeros, scales, groups, back = rounded(w, bits, group, symmetric, 1 if version == 1 else 0, order)
        stored = zeros - 1 if version == 1 else zeros
        return {"../qweight": bit_stream(codes.T, bits), "../qzeros": bit_stream(stored, bits).T, "../scales": scales.T,
                "../g_idx": groups}, back
    return convert


def ct_group(layout, targets=("Linear",), **weights):
    weights = {"symmetric": True, "dynamic": False, "type": "float", **weights}
    return {"targets": list(targets), "weights": weights, "input_activations": None, "output_activations": None,
            "format": layout}


def ct_config(layout, *groups, ignore=("lm_head",)):
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
            "config_groups": {f"group_{i}": g for i, g in enumerate(groups)}, "ignore": list(ignore)}


def of_gpt2():
    gpt2().save_pretrained(BASE_GPT2)
    bitsandbytes("gpt2_nf4", BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"), nf4, BASE_GPT2)
    bitsandbytes("gpt2_int8", BitsAndBytesConfig(load_in_8bit=True), int8, BASE_GPT2)
    shutil.rmtree(BASE_GPT2)


def gpt_oss():
    """Experts in MXFP4, as openai's folders have them."""
    torch.manual_seed(9)
    folder, experts, width, inner = OUT / "gpt_oss_mxfp4", 4, 64, 32
    shutil.rmtree(folder, ignore_errors=True)
    config = GptOssConfig(vocab_size=64, hidden_size=width, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=16, num_local_experts=experts, num_experts_per_tok=2, sliding_window=4,
                          max_position_embeddings=64, initializer_range=0.2, bos_token_id=1, eos_token_id=2, swiglu_limit=0.9,
                          rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                               original_max_position_embeddings=16, truncate=False))
    m = GptOssForCausalLM(config).to(torch.bfloat16).eval()
    m.save_pretrained(folder)
    state, decoded = load_file(folder / "model.safetensors"), {}
    for key in [k for k in state if k.endswith(("gate_up_proj", "down_proj"))]:
        outputs, inputs = (2 * inner, width) if key.endswith("gate_up_proj") else (width, inner)
        state[key + "_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        state[key + "_scales"] = torch.randint(119, 124, (experts, outputs, inputs // 32), dtype=torch.uint8)
        decoded[key] = convert_moe_packed_tensors(state[key + "_blocks"], state[key + "_scales"], dtype=torch.bfloat16).contiguous()
        assert decoded[key].shape == state.pop(key).shape, key
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    keys = json.loads((folder / "config.json").read_text())
    rope = keys.pop("rope_parameters")
    keys.update(rope_theta=rope.pop("rope_theta"), rope_scaling=rope, experts_per_token=2, initial_context_length=16,
                quantization_config={"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"})
    keys.pop("dtype")
    (folder / "config.json").write_text(json.dumps(keys, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    values, m = m.state_dict(), GptOssForCausalLM(config).eval()  # anew: .to(bfloat16) also rounds the rotary buffers
    for name, p in m.named_parameters():
        p.data.copy_(decoded[name] if name in decoded else values[name])
    with torch.no_grad():
        logits = m(TOKENS).logits
    save_file({"tokens": TOKENS.to(torch.int32), "logits": logits.contiguous(), **decoded}, folder / "golden.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    print("gpt_oss_mxfp4", sum(p.stat().st_size for p in folder.iterdir()), "bytes, largest logit", logits.abs().max().item())


def main():
    shutil.rmtree(BASE, ignore_errors=True)
    model().save_pretrained(BASE)
    bitsandbytes("bnb_nf4", BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), nf4)
    bitsandbytes("bnb_nf4_bf16", BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                    bnb_4bit_quant_storage=torch.bfloat16), nf4)
    bitsandbytes("bnb_int8", BitsAndBytesConfig(load_in_8bit=True), int8)
    of_gpt2()
    by_hand("fp8_block", {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                          "weight_block_size": [128, 128]}, fp8_block)
    fp8 = dict(num_bits=8)
    by_hand("ct_fp8_row", ct_config("float-quantized", ct_group("float-quantized", strategy="channel", **fp8)),
            ct_fp8("channel", torch.bfloat16))
    by_hand("ct_fp8_tensor", ct_config("float-quantized", ct_group("float-quantized", strategy="tensor", **fp8)),
            ct_fp8("tensor", torch.float32))
    mx = dict(num_bits=4, strategy="group", group_size=32)
    by_hand("ct_mxfp4", ct_config("mxfp4-pack-quantized", ct_group("mxfp4-pack-quantized", **mx)), MXFP4)
    nv = dict(num_bits=4, strategy="tensor_group", group_size=16)
    by_hand("ct_nvfp4", ct_config("nvfp4-pack-quantized", ct_group("nvfp4-pack-quantized", **nv)), NVFP4)
    by_hand("modelopt_nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"},
                               "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
                                                                                               "dynamic": False, "group_size": 16}}},
                               "ignore": ["lm_head"]}, modelopt_nvfp4)
    by_hand("hqq", {"quant_method": "hqq", "quant_config": {"weight_quant_params": {
        "nbits": 4, "group_size": 32, "channel_wise": True, "optimize": True, "round_zero": False, "axis": 1,
        "view_as_float": False}, "scale_quant_params": None, "zero_quant_params": None, "offload_meta": False},
        "skip_modules": ["lm_head"]}, hqq)
    by_hand("eetq", {"quant_method": "eetq", "weights": "int8", "modules_to_not_convert": None}, eetq)
    for bits, group, symmetric, act_order, version in ((4, 32, True, False, 1), (3, 64, False, True, 2), (8, 16, False, False, 1)):
        by_hand(f"gptq_{bits}bit", {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order,
                                    "sym": symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
                                    "pack_dtype": "int32"}, gptq(bits, group, symmetric, act_order, version))
    row = ct_fp8("channel", torch.bfloat16)
    by_hand("mixed_ct", ct_config("mixed-precision",
                                  ct_group("float-quantized", [r"re:.*self_attn\..*"], strategy="channel", **fp8),
                                  ct_group("mxfp4-pack-quantized", [r"re:.*mlp\.(gate|up|down)_proj"], **mx),
                                  ignore=["lm_head", "re:.*o_proj$"]),
            lambda key, w: row(key, w) if "attn" in key else MXFP4(key, w), keep=["o_proj"])
    shutil.rmtree(BASE)
    gpt_oss()


if __name__ == "__main__":
    main()
