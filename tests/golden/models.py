"""Tiny model folders and what transformers computes with them.

The models of families that have a file in family_cases/ are listed there, the others below.

For each model under data/models/<name>/: config.json and weights as save_pretrained writes them (or, for
llama_tied, config.json in the older generation of keys), and golden.safetensors:

  input_ids  i32 [B,T]      the batch; labels are the same ids, shifted by transformers
  logits     f32 [B,T,V]
  logprobs   f32 [B,T]      log-probability of the next token of the row; 0 at the last
  loss       f32 [1]        mean of -logprobs over the B*(T-1) targets
  grad.NAME  f32            gradient of that mean, for every name of named_parameters(), HF layout; of experts, which
                            transformers keeps fused, for each projection "mlp.experts.gate_proj.weight" [E*O,I]; of experts that
                            files hold fused [E*O,I] and, of biases, [E*O], too; of norms
                            of heads, which have a number, all of them together "q_layernorm.norms.weight" [H*D]
  aux_loss   f32 [1]        the load balancing loss of a model with experts
  rope       f32 [64,2,D/2] cosines and sines of positions 0..63, where the model has rotary positions

Everything is fp32 with eager attention on the CPU, from the weights as stored in the file (qwen3 stores bf16).
llama_sharded holds the tensors of llama_tied in several files and has no golden.safetensors.

Made with torch 2.15.0, transformers 5.23.0, safetensors 0.8.0:  python tests/golden/models.py
"""
import copy
import json
import pathlib
import re
import shutil
import sys

import torch
from family_cases import attention_of, families, file_tensors, is_fused
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config,
                          GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

OUT = pathlib.Path(__file__).parent / "data" / "models"
B, T = 2, 23


def randomize(model, seed):
    """Weights large enough that every term of the forward shows in the logits."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                base = 1.0 if "norm" in name or "ln_" in name and name.endswith("weight") else 0.0
                base = 0.0 if model.config.model_type.startswith("gemma") else base  # 1 + w
                p.copy_(base + 0.1 * r)
            else:
                p.copy_(r * (0.5 if "embed" in name or "wte" in name else 0.15))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.2 * torch.randn(b.shape, generator=g))


def golden(model, folder, seed):
    model.eval()
    g = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(0, model.config.vocab_size, (B, T), generator=g)
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    lp = torch.log_softmax(out.logits.detach()[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    logprobs = torch.zeros(B, T)
    logprobs[:, :-1] = lp
    tensors = {"input_ids": ids.to(torch.int32), "logits": out.logits.detach().contiguous(), "logprobs": logprobs,
               "loss": out.loss.detach().reshape(1)}
    rotary = getattr(model.base_model, "rotary_emb", None)
    # Falcon has the table also where ALiBi takes its place
    if rotary is not None and not hasattr(rotary, "layer_types") and not getattr(model.config, "alibi", False):
        table = rotary(out.logits, torch.arange(64)[None])
        cos, sin = (table.real, table.imag) if torch.is_tensor(table) else table  # DeepSeek-V2 has complex numbers
        half = cos.shape[-1] // 2
        # Cohere holds each angle twice in a row, gpt-oss once, all others the whole list twice
        of = slice(None, None, 2) if model.config.model_type.startswith("cohere") else slice(half)
        of = slice(None) if model.config.model_type in ("gpt_oss", "deepseek_v2") else of
        tensors["rope"] = torch.stack([cos[0, :, of], sin[0, :, of]], 1).contiguous()
    for name, p in model.named_parameters():
        if model.config.model_type == "gpt_neox" and name == "lm_head.weight":
            name = "embed_out.weight"  # its name in files
        if name.endswith("e_score_correction_bias"):  # a parameter of ERNIE that has no gradient
            continue
        for key, grad in file_tensors(model.config.model_type, name, p.grad):
            if is_fused(model.config.model_type) and ".experts." in key:
                grad = grad.transpose(1, 2).contiguous() if grad.dim() == 3 else grad.flatten()
            grad = grad.flatten(0, grad.dim() - 2) if grad.dim() == 3 else grad
            key = "grad." + re.sub(r"(_layernorm\.norms)\.\d+\.", r"\1.", key)
            tensors[key] = torch.cat([tensors[key], grad]) if key in tensors else grad.contiguous()
    if hasattr(model.config, "router_aux_loss_coef") and getattr(model.config, "num_local_experts", 1) > 0:
        with torch.no_grad():
            balance = model(input_ids=ids, output_router_logits=True, use_cache=False).aux_loss
        tensors["aux_loss"] = balance.reshape(1)
    save_file(tensors, folder / "golden.safetensors", metadata={"format": "pt"})
    print(folder.name, "loss", out.loss.item(), "max |logit|", out.logits.abs().max().item(),
          "params", sum(p.numel() for p in model.parameters()))


def make(name, cls, config, seed, dtype=torch.float32, **save):
    folder = OUT / name
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config._attn_implementation = attention_of(config.model_type)
    model = cls(config)
    randomize(model, seed)
    model.to(dtype).save_pretrained(folder, **save)
    if config.model_type == "internlm3":  # transformers builds it as a llama, and saves its configuration as one
        config.architectures, config.dtype = ["InternLM3ForCausalLM"], "float32"
        config.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if not save:  # reloaded: .to(bfloat16) also rounds the rotary buffers
        golden(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                    attn_implementation=attention_of(config.model_type)), folder, seed)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


def older_keys(folder):
    if len(sys.argv) > 1 and folder.name not in sys.argv[1:]:
        return
    path = folder / "config.json"
    c = json.loads(path.read_text())
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    c["rope_scaling"] = None
    c["torch_dtype"] = c.pop("dtype")
    c.pop("head_dim")
    path.write_text(json.dumps(c, indent=2) + "\n")


tiny = dict(vocab_size=128, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
llama = dict(tiny, num_key_value_heads=2, rms_norm_eps=1e-5)
tied = LlamaConfig(**llama, tie_word_embeddings=True)
older_keys(make("llama_tied", LlamaForCausalLM, tied, 1))
make("llama_sharded", LlamaForCausalLM, tied, 1, max_shard_size="40KB")
make("llama_untied", LlamaForCausalLM, LlamaConfig(
    **dict(llama, max_position_embeddings=256, eos_token_id=[2, 5]), tie_word_embeddings=False,
    rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                         high_freq_factor=4.0, original_max_position_embeddings=16)), 2)
make("qwen3", Qwen3ForCausalLM, Qwen3Config(
    **dict(tiny, vocab_size=120), num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=True,
    rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), 3, dtype=torch.bfloat16)
make("qwen2", Qwen2ForCausalLM, Qwen2Config(
    **tiny, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)), 5)
make("gpt2", GPT2LMHeadModel, GPT2Config(
    vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, attn_pdrop=0.0,
    embd_pdrop=0.0, resid_pdrop=0.0), 4)

# With the name of a model (python tests/golden/models.py gemma2) only that one is made.
small = dict(tiny, vocab_size=64, hidden_size=24, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2)
make("mistral", MistralForCausalLM, MistralConfig(
    **small, head_dim=8, sliding_window=7, rms_norm_eps=1e-5, tie_word_embeddings=False), 6)
make("qwen2_window", Qwen2ForCausalLM, Qwen2Config(
    **dict(small, hidden_size=32), rms_norm_eps=1e-6, use_sliding_window=True, sliding_window=6, max_window_layers=1), 7)
# pad_token_id None: nn.Embedding gives the row of padding_idx no gradient, whatever tokens mean
gemma = dict(small, num_hidden_layers=3, head_dim=8, sliding_window=6, query_pre_attn_scalar=12, pad_token_id=None)
make("gemma2", Gemma2ForCausalLM, Gemma2Config(**gemma, attn_logit_softcapping=2.0, final_logit_softcapping=3.0), 8)
make("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(
    **gemma, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                         full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=4.0))), 9)
factors = dict(short_factor=[1.0, 1.1, 1.3, 1.6], long_factor=[1.5, 2.0, 3.0, 5.0])
phi = dict(small, hidden_size=32, original_max_position_embeddings=16, pad_token_id=None)
make("phi3", Phi3ForCausalLM, Phi3Config(
    **phi, rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, **factors)), 10)
make("olmo2", Olmo2ForCausalLM, Olmo2Config(**dict(small, hidden_size=32), pad_token_id=None), 11)
make("llama_yarn", LlamaForCausalLM, LlamaConfig(
    **dict(small, hidden_size=32), rms_norm_eps=1e-5, tie_word_embeddings=True,
    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)), 12)
make("phi3_partial", Phi3ForCausalLM, Phi3Config(
    **dict(phi, original_max_position_embeddings=64), rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)), 13)
neox = dict(tiny, vocab_size=64, hidden_size=32, intermediate_size=40, num_attention_heads=2)
make("gpt_neox", GPTNeoXForCausalLM, GPTNeoXConfig(**neox, rotary_pct=0.25), 14)
make("gpt_neox_serial", GPTNeoXForCausalLM, GPTNeoXConfig(
    **neox, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast", tie_word_embeddings=True,
    rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=2.0, partial_rotary_factor=0.5)), 15)
make("gpt_neox_relu", GPTNeoXForCausalLM, GPTNeoXConfig(**dict(neox, num_hidden_layers=1), rotary_pct=1.0, hidden_act="relu"), 16)
for seed, act in enumerate(("silu", "relu2", "relu6", "quick_gelu", "tanh"), 20):
    make(f"gpt_neox_{act}", GPTNeoXForCausalLM, GPTNeoXConfig(
        **dict(neox, num_hidden_layers=1, hidden_size=16, intermediate_size=24), rotary_pct=0.5, hidden_act=act), seed)
make("llama_dynamic", LlamaForCausalLM, LlamaConfig(
    **dict(small, num_hidden_layers=1), rms_norm_eps=1e-5, tie_word_embeddings=True,
    rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=4.0)), 17)
# pad_token_id None: nn.Embedding gives the row of padding_idx no gradient
for module in families().values():
    for name, (seed, keys) in module.GOLDEN.items():
        config = AutoConfig.for_model(module.TYPE, **copy.deepcopy({"pad_token_id": None, **keys}))
        make(name, type(AutoModelForCausalLM.from_config(config)), config, seed)
