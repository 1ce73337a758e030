#!/usr/bin/env python3
"""Mean squared error of Lathe's encoders on a real model's weights, beside that of the library of each format.

    /path/to/python tests/golden/encode_quality.py LATHE MODEL [--only nf4,hqq] [--ggml LIBRARY]

MODEL is a Hugging Face folder with plain weights. For each format and setting, `lathe quantize` writes a folder, which the library's
own decoder reads (check_quantized.py); the library encodes the same weights with the same settings and decodes them. Both errors are
sums over all linear weights except the head, in f64, of the differences in f32. A folder of a BERT (all-MiniLM-L6-v2) also serves: its
matrices are put into the folder of a Llama, without a gate, because the encoders look at matrices alone.

  nf4, int8       bitsandbytes: quantize_4bit, int8_vectorwise_quant
  fp8             blocks: transformers' Fp8Quantize; rows and tensor: compressed-tensors
  mxfp4           compressed-tensors (scale_rounding "nearest"), torchao's to_mx ("floor")
  nvfp4           compressed-tensors, modelopt's NVFP4QTensor
  hqq             hqq's Quantizer
  eetq            its formula, in quant_formats.py: there is no package
  gguf            gguf-py, and llama.cpp for Q4_K and Q6_K: --ggml names a shared library with its ggml_quantize_chunk

Prints a line of a table for each, and exits with 1 if an error of Lathe is above 1.01 times the library's. gptq and awq, whose
codes depend on data, are compared by calibrated_quality.py.
"""
import argparse
import ctypes
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import check_quantized

MOST = 1.01
NAMES = {"llama.cpp": None, "formula": None}


def blocks_of_128(w):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
    config = types.SimpleNamespace(weight_block_size=(128, 128), scale_fmt=None)
    rows, cols = w.shape
    padded = torch.nn.functional.pad(w, (0, -cols % 128, 0, -rows % 128))
    made = Fp8Quantize(types.SimpleNamespace(quantization_config=config))._quantize_one("m.weight", padded)
    back = Fp8Dequantize(None)._dequantize_one(made["m.weight"], made["m.weight_scale_inv"], torch.float32)
    return back[:rows, :cols]


def compressed_fp8(strategy):
    def encode(w):
        import quant_formats as qf
        s = qf.scheme(num_bits=8, strategy=strategy)
        low, high = (w.amin(1, keepdim=True), w.amax(1, keepdim=True)) if strategy == "channel" else (w.amin(), w.amax())
        scale, _ = qf.calculate_qparams(low, high, s.weights)
        state = qf.FloatQuantizationCompressor.compress({"weight": w, "weight_scale": scale}, s)
        return qf.FloatQuantizationCompressor.decompress(state, s)["weight"]
    return encode


def compressed_fp4(is_nv):
    def encode(w):
        import quant_formats as qf
        kind = torch.float8_e4m3fn if is_nv else torch.uint8
        compressor = qf.NVFP4PackedCompressor if is_nv else qf.MXFP4PackedCompressor
        s = qf.scheme(num_bits=4, strategy="tensor_group" if is_nv else "group", group_size=16 if is_nv else 32, scale_dtype=kind,
                      zp_dtype=kind)
        groups = w.unflatten(-1, (-1, s.weights.group_size))
        g = qf.generate_gparam(w.min(), w.max()) if is_nv else None
        scale, _ = qf.calculate_qparams(groups.amin(-1), groups.amax(-1), s.weights, global_scale=g)
        state = compressor.compress({"weight": w, "weight_scale": scale, **({"weight_global_scale": g} if is_nv else {})}, s)
        codes = qf.unpack_fp4_from_uint8(state["weight_packed"], *w.shape, torch.float32)
        return qf.dequantize(x_q=codes, scale=compressor._decompress_scale(state["weight_scale"], torch.float32), args=s.weights,
                             global_scale=g, dtype=torch.float32)
    return encode


def torchao_floor(w):
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_dtype, to_mx
    scale, codes = to_mx(w, torch.float4_e2m1fn_x2, 32, ScaleCalculationMode.FLOOR)
    return to_dtype(codes, scale, torch.float4_e2m1fn_x2, 32, torch.float32)


def modelopt(w):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    q, scale, scale_2 = NVFP4QTensor.quantize(w.clone(), 16)
    return q.dequantize(torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})


def hqq(bits, group, round_zero=False):
    def encode(w):
        from hqq.core.quantize import Quantizer
        codes, meta = Quantizer.quantize(w, nbits=bits, group_size=group, axis=1, round_zero=round_zero, device="cpu",
                                         compute_dtype=torch.float16)
        meta["compute_dtype"] = torch.float16
        codes, meta = Quantizer.to_inplace(codes, meta, device="cpu")
        return Quantizer.dequantize(codes, meta).float()
    return encode


def nf4(nested):
    def encode(w):
        import bitsandbytes.functional as bnb
        q, s = bnb.quantize_4bit(w, quant_type="nf4", blocksize=64, compress_statistics=nested)
        return bnb.dequantize_4bit(q, s).float()
    return encode


def int8(w):
    import bitsandbytes.functional as bnb
    q, scale, _ = bnb.int8_vectorwise_quant(w.half())  # Int8Params makes f16 of a weight first
    return q.float() * scale.view(-1, 1) * (1.0 / 127.0)


def eetq(w):
    import quant_formats as qf
    q, scales = qf.eetq_quantize(w.numpy().T.copy())
    return torch.from_numpy((q.astype(np.float32) * scales.astype(np.float32)).T.copy())


# format, settings, library, the library's weights
CASES = [
    ("nf4", "double_quant=true", "bitsandbytes", nf4(True)),
    ("nf4", "double_quant=false", "bitsandbytes", nf4(False)),
    ("int8", "", "bitsandbytes", int8),
    ("eetq", "", "formula", eetq),
    ("fp8", "scaling=block", "transformers", blocks_of_128),
    ("fp8", "scaling=row", "compressed-tensors", compressed_fp8("channel")),
    ("fp8", "scaling=tensor", "compressed-tensors", compressed_fp8("tensor")),
    ("mxfp4", "scale_rounding=nearest", "compressed-tensors", compressed_fp4(False)),
    ("mxfp4", "scale_rounding=floor", "torchao", torchao_floor),
    ("nvfp4", "layout=compressed-tensors", "compressed-tensors", compressed_fp4(True)),
    ("nvfp4", "layout=modelopt", "nvidia-modelopt", modelopt),
    ("hqq", "bits=8 group_size=64", "hqq", hqq(8, 64)),
    ("hqq", "bits=4 group_size=64", "hqq", hqq(4, 64)),
    ("hqq", "bits=4 group_size=64", "hqq, round_zero", hqq(4, 64, True)),
    ("hqq", "bits=4 group_size=32", "hqq", hqq(4, 32)),
    ("hqq", "bits=3 group_size=64", "hqq", hqq(3, 64)),
    ("hqq", "bits=2 group_size=64", "hqq", hqq(2, 64)),
    ("hqq", "bits=1 group_size=64", "hqq", hqq(1, 64)),
]


def version(library):
    name = library.split(",")[0]
    return library if name in NAMES else f"{name} {importlib.metadata.version(name)}{library[len(name):]}"


def llama_of_bert(source, folder):
    """A Llama whose q, k, v, o, up and down are the matrices of a BERT; its gates repeat up and are not counted."""
    config = json.loads((source / "config.json").read_text())
    old, width = load_file(source / "model.safetensors"), config["hidden_size"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())  # a file of GGUF needs a tokenizer
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    vocab = len(alphabet)
    state = {"model.embed_tokens.weight": torch.zeros(vocab, width), "model.norm.weight": torch.ones(width)}
    parts = {"self_attn.q_proj": "attention.self.query", "self_attn.k_proj": "attention.self.key",
             "self_attn.v_proj": "attention.self.value", "self_attn.o_proj": "attention.output.dense",
             "mlp.gate_proj": "intermediate.dense", "mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense"}
    for i in range(config["num_hidden_layers"]):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            state[f"model.layers.{i}.{norm}.weight"] = torch.ones(width)
        for to, of in parts.items():
            state[f"model.layers.{i}.{to}.weight"] = old[f"encoder.layer.{i}.{of}.weight"].float().clone()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": config["intermediate_size"], "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"], "num_key_value_heads": config["num_attention_heads"],
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "dtype": "float32", "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}))
    return folder


class Errors:
    """Sums of squared differences from the plain weights, and the worst ratio of a single weight."""

    def __init__(self):
        self.ours, self.theirs, self.n, self.weights, self.worst = 0.0, 0.0, 0, 0, 0.0

    def add(self, plain, ours, theirs):
        assert plain.shape == ours.shape == theirs.shape, (plain.shape, ours.shape, theirs.shape)
        a, b = (((x.double() - plain.double()) ** 2).sum().item() for x in (ours, theirs))
        self.ours, self.theirs, self.n, self.weights = self.ours + a, self.theirs + b, self.n + plain.numel(), self.weights + 1
        self.worst = max(self.worst, a / b if b > 0 else 1.0 if a == 0 else float("inf"))

    def line(self, name, settings, library):
        ratio = self.ours / self.theirs if self.theirs > 0 else 1.0 if self.ours == 0 else float("inf")
        print(f"| `{name}` | {settings.replace(' ', ', ') or '-'} | {self.weights} | {self.ours / self.n:.5e} | {library} | "
              f"{self.theirs / self.n:.5e} | {ratio:.4f} | {self.worst:.4f} |", flush=True)
        return ratio <= MOST


def lathe_quantize(lathe, model, name, settings, out):
    keys = [part for s in settings.split() for part in (f"--quant.{s.split('=')[0]}", s.split("=")[1])]
    subprocess.run([lathe, "quantize", str(model), "--quant.name", name, *keys, "-o", str(out)], check=True,
                   stdout=subprocess.DEVNULL)


def quantized(lathe, model, plain, shapes, work, only):
    good, made = True, None
    for name, settings, library, encode in CASES:
        if only and name not in only:
            continue
        folder = work / "q"
        if made != (name, settings):
            shutil.rmtree(folder, ignore_errors=True)
            lathe_quantize(lathe, model, name, settings, folder)
            ours, made = check_quantized.weights_of(folder, shapes), (name, settings)
        assert set(plain) <= set(ours), sorted(set(plain) - set(ours))[:3]
        errors = Errors()
        for key, w in plain.items():
            errors.add(w, ours[key], encode(w))
        good &= errors.line(name, settings, version(library))
    return good


# ---- gguf ----

def ggml_encoder(path):
    """x [rows, cols] -> blocks, by llama.cpp."""
    library = ctypes.CDLL(path)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                            ctypes.c_int64, ctypes.c_void_p]

    def encode(x, kind):
        import gguf
        block, size = gguf.GGML_QUANT_SIZES[kind]
        out = np.empty((x.shape[0], x.shape[1] // block * size), np.uint8)
        library.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], None)
        return out
    return encode


def gguf_files(lathe, model, is_bert, work, ggml):
    import gguf

    def tensors(kind):
        path = work / f"{kind}.gguf"
        subprocess.run([lathe, "convert", str(model), "-o", str(path), "--type", kind], check=True, stdout=subprocess.DEVNULL)
        return {t.name: t for t in gguf.GGUFReader(path).tensors if "blk." in t.name and t.name.endswith("weight") and
                "norm" not in t.name and not (is_bert and "ffn_gate" in t.name)}

    good, exact = True, tensors("f32")
    for kind in ("q8_0", "q4_0", "q4_k", "q6_k"):
        errors = {}
        for name, t in tensors(kind).items():
            x = np.ascontiguousarray(exact[name].data, np.float32)
            library = "llama.cpp" if ggml else "gguf"
            if t.tensor_type.name.endswith("_K") and not ggml:
                continue
            theirs = (ggml or gguf.quants.quantize)(x, t.tensor_type)
            e = errors.setdefault((t.tensor_type.name, library), Errors())
            e.add(*(torch.from_numpy(np.array(y)) for y in (x, gguf.quants.dequantize(t.data, t.tensor_type),
                                                            gguf.quants.dequantize(theirs, t.tensor_type))))
        for (block, library), e in sorted(errors.items()):
            good &= e.line("gguf", f"type={kind} {block}", version(library))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lathe")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--only", default="", help="names of formats, with commas between; gguf is one")
    parser.add_argument("--ggml", help="a shared library with ggml_quantize_chunk")
    args = parser.parse_args()
    only = {name for name in args.only.split(",") if name}
    if only - {c[0] for c in CASES} - {"gguf"}:
        parser.error(f"--only {args.only}: expected some of gguf, {', '.join(dict.fromkeys(c[0] for c in CASES))}")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        is_bert = json.loads((args.model / "config.json").read_text())["model_type"] == "bert"
        model = llama_of_bert(args.model, work / "llama") if is_bert else args.model
        matrices = {k: v.float() for f in sorted(model.glob("*.safetensors")) for k, v in load_file(f).items()
                    if k.endswith("_proj.weight")}
        plain = {k: v for k, v in matrices.items() if not (is_bert and "gate_proj" in k)}
        print("| format | settings | weights | mse of Lathe | library | its mse | ratio | largest ratio of a weight |")
        print("|---|---|---|---|---|---|---|---|")
        good = quantized(args.lathe, model, plain, {k: v.shape for k, v in matrices.items()}, work, only)
        if not only or "gguf" in only:
            good &= gguf_files(args.lathe, model, is_bert, work, args.ggml and ggml_encoder(args.ggml))
    sys.exit(0 if good else f"an error of Lathe is above {MOST} times the library's")


if __name__ == "__main__":
    main()
