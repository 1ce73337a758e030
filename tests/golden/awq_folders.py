#!/usr/bin/env python3
"""The folder of a tiny Llama that AutoAWQ itself quantized and saved: data/quantized/awq/.

    /path/to/python tests/golden/awq_folders.py    # needs AutoAWQ 0.2.9, torch, transformers 4.51

  config.json, model.safetensors    from AutoAWQ's quantize() and save_quantized(): f16, groups of 32, version GEMM
  golden.safetensors                what AutoAWQ reads from this folder again: the decoded weights f16 [out,in], as its
                                    dequantize_gemm() gives them, and the logits f32 [1,T,V] of a plain Llama with the weights in
                                    f32 (dequantize_gemm() with widened scales), and the row of tokens

AutoAWQ 0.2.9 installs with --no-deps --no-build-isolation beside torch, transformers 4.51, accelerate 1.6 and datasets 3.6.
check_quantized.py lets AutoAWQ read what Lathe writes, with the functions of this file.
"""
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parent / "data" / "quantized" / "awq"
T = 11


def opened(folder):
    """AutoAWQ's model of a folder, by its own from_quantized()."""
    import awq.models.base as base
    from awq import AutoAWQForCausalLM
    base.get_best_device = lambda: "cuda:0"  # on a CPU it wants intel_extension_for_pytorch, and computes with other modules
    return AutoAWQForCausalLM.from_quantized(str(folder), fuse_layers=False, device_map={"": "cpu"}, safetensors=True)


def decoded(model, dtype):
    """{name: [out,in]} of the quantized weights; f16 has the scales as they are stored."""
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    out = {}
    for name, m in model.model.named_modules():
        if isinstance(m, WQLinear_GEMM):
            w = dequantize_gemm(m.qweight, m.qzeros, m.scales.to(dtype), m.w_bit, m.group_size)
            assert w.dtype == dtype
            out[name + ".weight"] = w.T.contiguous()
    return out


def quantize():
    from awq import AutoAWQForCausalLM
    from transformers import LlamaConfig, LlamaForCausalLM
    from calibrated_quality import keep_weights
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                         max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
    rows = [torch.randint(3, 64, (32,)).tolist() for _ in range(32)]
    keep_weights()
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).half().save_pretrained(folder)
        model = AutoAWQForCausalLM.from_pretrained(folder, device_map="cpu", torch_dtype=torch.float16, safetensors=True)
    model.quantize(None, quant_config={"w_bit": 4, "q_group_size": 32, "zero_point": True, "version": "GEMM"}, calib_data=rows,
                   max_calib_samples=32, max_calib_seq_len=32)
    shutil.rmtree(OUT, ignore_errors=True)
    model.save_quantized(str(OUT))
    (OUT / "generation_config.json").unlink()


def main():
    from transformers import LlamaForCausalLM
    quantize()
    model = opened(OUT)
    plain = LlamaForCausalLM(model.config).float().eval()
    state = {k: v.float() for k, v in model.model.state_dict().items() if not k.endswith(("qweight", "qzeros", "scales"))}
    plain.load_state_dict({**state, **decoded(model, torch.float32)})
    tokens = torch.tensor([[(7 * i * i + 3 * i) % 61 + 3 for i in range(T)]])
    with torch.no_grad():
        logits = plain(tokens).logits
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous(), **decoded(model, torch.float16)},
              OUT / "golden.safetensors")
    for path in OUT.iterdir():
        path.chmod(0o644)
    print("awq", sum(p.stat().st_size for p in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
