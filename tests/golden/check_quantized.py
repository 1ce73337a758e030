#!/usr/bin/env python3
"""Loads folders that `lathe quantize` wrote with the library that their layout comes from, and compares what the model says.

    /path/to/python tests/golden/check_quantized.py build/bin/lathe DIR...

The library decodes every weight to f32; a plain model with these weights continues two prompts greedily in fp32. Lathe continues
them from the packed folder in fp32. Tokens must be equal, log-probabilities within 1e-4. bitsandbytes' folders are loaded by
transformers, those of compressed-tensors by its decompressors, FineGrained FP8 by transformers' Fp8Dequantize, hqq by its
Quantizer, ModelOpt's NVFP4 by its NVFP4QTensor, gptq by GPTQModel (which may need a Python of its own:
GPTQMODEL_CPU_WORKERS=2 on two processors). Prints one line a folder.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

PROMPTS = ["The capital of France is", "def add(a, b):\n"]
NEW = 12


def of_bitsandbytes(folder, _):
    import bitsandbytes.functional as bnb
    m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    out = {}
    for name, module in m.named_modules():
        w = getattr(module, "weight", None)
        if hasattr(w, "quant_state") and w.quant_state is not None:
            w.quant_state.dtype = torch.float32
            out[name + ".weight"] = bnb.dequantize_4bit(w.data, w.quant_state).float()
        elif hasattr(w, "CB") and w.CB is not None:
            out[name + ".weight"] = w.CB.float() * w.SCB.view(-1, 1) * (1.0 / 127.0)
    return out


def of_compressed(_, state, config):
    from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor as MX
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor as NV
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    parsed = QuantizationConfig.model_validate(config)  # the library's own schema takes the configuration
    args = next(iter(parsed.config_groups.values())).weights
    out = {}
    for key in state:
        if key.endswith("weight_packed"):
            at = key[: -len("_packed")]
            cols = state[key].shape[1] * 2
            codes = unpack_fp4_from_uint8(state[key], state[key].shape[0], cols, torch.float32)
            wide = (NV if "nvfp4" in config["format"] else MX)._decompress_scale(state[at + "_scale"], torch.float32)
            out[at] = dequantize(x_q=codes, scale=wide, args=args, global_scale=state.get(at + "_global_scale"),
                                 dtype=torch.float32)
        elif key.endswith("weight_scale") and key[: -len("_scale")] in state:
            at = key[: -len("_scale")]
            out[at] = state[at].float() * state[key].float()
    return out


def of_modelopt(state):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    out = {}
    for key in state:
        if key.endswith("weight_scale_2"):
            at = key[: -len("_scale_2")]
            packed = NVFP4QTensor(torch.Size((state[at].shape[0], state[at].shape[1] * 2)), torch.float32, state[at])
            out[at] = packed.dequantize(torch.float32, scale=state[at + "_scale"], double_scale=state[key], block_sizes={-1: 16})
    return out


def of_fp8(state):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    out = {}
    for key in state:
        if key.endswith("weight_scale_inv"):
            w = state[key[: -len("_scale_inv")]]
            padded = torch.zeros(-(-w.shape[0] // 128) * 128, -(-w.shape[1] // 128) * 128, dtype=w.dtype)
            padded[: w.shape[0], : w.shape[1]] = w
            back = Fp8Dequantize(None)._dequantize_one(padded, state[key], torch.float32)
            out[key[: -len("_scale_inv")]] = back[: w.shape[0], : w.shape[1]]
    return out


def of_hqq(state, config, shapes):
    from hqq.core.quantize import Quantizer
    p = config["quant_config"]["weight_quant_params"]
    out = {}
    for key in state:
        if key.endswith(".W_q"):
            at = key[: -len("W_q")]
            meta = {"nbits": p["nbits"], "group_size": p["group_size"], "axis": 1, "shape": shapes[at + "weight"],
                    "scale": state[at + "scale"], "zero": state[at + "zero"], "view_as_float": False, "unpack_view_dtype": torch.uint8,
                    "packing": Quantizer.bit_to_packing[p["nbits"]], "compute_dtype": getattr(torch, config["compute_dtype"])}
            out[at + "weight"] = Quantizer.dequantize(state[key], meta).float()
    return out


def of_eetq(state):
    """Undoes the order of the kernel: decoded by its inverse, found by sending indices through quant_formats.py."""
    import quant_formats as qf
    import numpy as np
    out = {}
    for key in state:
        if not key.endswith("weight_scales"):
            continue
        at = key[: -len("_scales")]
        packed, scales = state[at].numpy(), state[key].float().numpy()
        planes = [qf.eetq_preprocess((np.arange(packed.size).reshape(packed.shape) >> 8 * b & 255).astype(np.uint8).view(np.int8))
                  for b in range(4)]
        index = sum((p.view(np.uint8) ^ 128).astype(np.int64) << 8 * b for b, p in enumerate(planes))
        codes = np.empty(packed.size, np.int8)
        codes[index.ravel()] = (packed.view(np.uint8) ^ 128).view(np.int8).ravel()
        out[at] = torch.from_numpy((codes.reshape(packed.shape).astype(np.float32) * scales).T.copy())
    return out


def of_gptq(folder):
    """GPTQModel's own reader and decoder (its torch kernel)."""
    from gptqmodel import BACKEND, GPTQModel
    model = GPTQModel.load(str(folder), device="cpu", backend=BACKEND.TORCH, dtype=torch.float16).model
    out = {}
    for name, module in model.named_modules():
        if hasattr(module, "dequantize_weight"):
            module.scales = module.scales.float()  # stored in f16; else the product is rounded to f16
            out[name + ".weight"] = module.dequantize_weight().T.float()
    return out


def of_awq(folder):
    """AutoAWQ's own reader and decoder. It computes in f16, which rounds the f32 product once."""
    import awq_folders
    model = awq_folders.opened(folder)
    out = awq_folders.decoded(model, torch.float32)
    for key, half in awq_folders.decoded(model, torch.float16).items():
        assert torch.equal(half.view(torch.int16), out[key].half().view(torch.int16)), key
    return out


def weights_of(folder, shapes):
    """The quantized weights of a folder in f32, as the library decodes them; shapes: of the plain model's."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    state = {k: v for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(f).items()}
    method = config["quant_method"]
    if method == "bitsandbytes":
        return of_bitsandbytes(folder, state)
    if method == "compressed-tensors":
        return of_compressed(folder, state, config)
    if method == "modelopt":
        return of_modelopt(state)
    if method == "fp8":
        return of_fp8(state)
    if method == "hqq":
        return of_hqq(state, config, shapes)
    if method == "gptq":
        return of_gptq(folder)
    if method == "awq":
        return of_awq(folder)
    if method == "eetq":
        return of_eetq(state)
    raise SystemExit(f"{folder}: no library for {method}")


def equal_weights(lathe, folder, weights):
    """The number of weights that Lathe decodes to the same bits in f32, by way of a GGUF file and back."""
    with tempfile.TemporaryDirectory() as work:
        for source, out in ((folder, "m.gguf"), (f"{work}/m.gguf", "back")):
            subprocess.run([lathe, "convert", str(source), "-o", f"{work}/{out}", "--type", "f32"], check=True,
                           stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        state = {k: v for f in pathlib.Path(work, "back").glob("*.safetensors") for k, v in load_file(f).items()}
    return sum(torch.equal(state[k].view(torch.int32), w.contiguous().view(torch.int32)) for k, w in weights.items())


def decoded(folder):
    state = {k: v for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(f).items()}
    plain = AutoConfig.from_pretrained(folder)
    del plain.quantization_config
    if hasattr(plain, "rope_theta") and hasattr(plain, "rope_parameters"):  # transformers 4 and a folder of 5
        plain.rope_theta = plain.rope_parameters["rope_theta"]
    model = AutoModelForCausalLM.from_config(plain).float().eval()
    shapes = {k: v.shape for k, v in model.state_dict().items()}
    packed = weights_of(folder, shapes)
    weights = dict(packed)
    weights.update({k: v.float() for k, v in state.items() if k in shapes and k not in weights})
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model, packed


def main():
    lathe, folders, worst_of_all = sys.argv[1], sys.argv[2:], 0.0
    for name in folders:
        folder = pathlib.Path(name)
        model, packed = decoded(folder)
        same = equal_weights(lathe, folder, packed)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        with tempfile.TemporaryDirectory() as work:
            prompts, out = pathlib.Path(work, "in.jsonl"), pathlib.Path(work, "out.jsonl")
            prompts.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
            subprocess.run([lathe, "generate", name, "--prompts", str(prompts), "-o", str(out), "--logprobs", "--temperature", "0",
                            "--ignore-eos", "--max-new-tokens", str(NEW), "--train.precision", "fp32"], check=True,
                           stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
        worst, equal = 0.0, 0
        for prompt, row in zip(PROMPTS, rows):
            ids = tokenizer.encode(prompt).ids
            start = len(ids)
            for token, logprob in zip(row["ids"], row["logprobs"]):
                with torch.no_grad():
                    p = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)
                equal += int(p.argmax()) == token
                worst = max(worst, abs(float(p[token]) - logprob))
                ids.append(token)
            assert len(ids) - start == NEW, row
        worst_of_all = max(worst_of_all, worst)
        print(f"{name}: {same} of {len(packed)} weights equal, {equal} of {NEW * len(PROMPTS)} greedy tokens equal, log-probabilities differ by {worst:.1e}")
        assert equal == NEW * len(PROMPTS) and worst <= 1e-4 and same == len(packed) > 0


if __name__ == "__main__":
    main()
