#!/usr/bin/env python3
"""Folders of adapters that PEFT wrote, and the losses that PEFT computes with them: tests/cases/adapters/.

Written to data/peft/:

  base/, tied/          tiny Llama models over the 256 bytes and an end, 256; tied has one matrix for embedding and head
  conv1d/               a tiny GPT-2, whose layers all have biases
  experts/              a tiny Qwen3-MoE, for the fused parameters of its experts
  CASE/                 adapter_config.json and adapter_model.safetensors, as save_pretrained writes them
  text.txt              64 bytes
  losses.txt            one line per case: folder of the base, case, the mean loss of PEFT over the 64 predictions of the
                        text and the end; "-" for the adapter of a base itself, "refused" where PEFT itself raises, or where the adapter
                        needs what Lathe does not offer
  merges.txt            the same for the models that merge_and_unload makes of adapters with lora_bias; "refused" where PEFT
                        raises, because a layer of the base has no bias
  keys.txt              every field of LoraConfig and OFTConfig: method, key, a value other than its default, as JSON. A field
                        of a later PEFT that has no value in VALUES ends this script.

All is fp32 on the CPU. Made with torch 2.15.0, transformers 5.23.0, peft 0.21.2: python tests/golden/peft_folders.py
"""
import dataclasses
import json
import os
import pathlib
import shutil
import warnings

import torch
from peft import LoraConfig, OFTConfig, PeftModel, get_peft_model
from peft.tuners.lora.config import KasaConfig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

DATA = pathlib.Path(__file__).parent / "data" / "peft"
TEXT = b"It was the best of times, it was the worst of times, and so on.\n"
assert len(TEXT) == 64
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = dict(r=4, lora_alpha=16, task_type="CAUSAL_LM")
MODULES = [f"model.layers.{i}.{p}" for i in range(3) for p in
           ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]]


def lora(**more):
    return lambda: LoraConfig(**{**LORA, **more})


# EVA writes a rank for each module by its whole name. The modules of layers 3 to 9 are not in this model.
RANKS = {f"model.layers.{i}.mlp.{p}": 2 for i in range(3, 25) for p in ["gate_proj", "up_proj", "down_proj"]}
RANKS.update({name: 1 + i % 3 for i, name in enumerate(MODULES)})

CASES = {
    "digits": ("base", lora(lora_alpha=4, target_modules=["q_proj", "v_proj"], alpha_pattern={r"layers\.\d+\.self_attn\.v_proj": 64})),
    "noncapturing": ("base", lora(target_modules=["q_proj", "v_proj"], rank_pattern={r"layers\.(?:0|1)\.self_attn\.v_proj": 8})),
    "mixed": ("base", lora(lora_alpha=4, target_modules=["q_proj", "v_proj"],
                           alpha_pattern={r"layers\.\d+\.self_attn\.v_proj|layers\.0\.self_attn\.q_proj": 64})),
    "first_pattern": ("base", lora(target_modules=["q_proj", "v_proj"], alpha_pattern={"v_proj": 64, r"layers.0.self_attn.v_proj": 2, "_proj": 9, ".*_proj": 5},
                                   rank_pattern={"z_proj": 3, "layers.1.self_attn.q_proj": 6, "q_proj": 2})),
    "lookahead": ("base", lora(target_modules=["q_proj", "v_proj"], alpha_pattern={r"layers\.(?!0)\d\..*?\.[qv]_proj": 48})),
    "unmatched_target": ("base", lora(target_modules=["q_proj", "query_key_value"])),
    "unmatched_exclude": ("base", lora(target_modules=ALL, exclude_modules=["down_proj", "w2"])),
    "unmatched_saved": ("base", lora(target_modules=["q_proj"], modules_to_save=["norm", "ln_f"])),
    "exclude_pattern": ("base", lora(target_modules=ALL, exclude_modules=r".*\.mlp\..*")),
    "layers": ("base", lora(target_modules=["q_proj"], layers_to_transform=[0, 2])),
    "layer": ("base", lora(target_modules=["q_proj", "model.layers.0.mlp.up_proj"], layers_to_transform=1)),
    "layers_pattern": ("base", lora(target_modules=["q_proj"], layers_to_transform=[2, 7], layers_pattern=["h", "layers"])),
    "rank_260": ("base", lora(r=260, target_modules=["layers.0.self_attn.k_proj"])),
    "ranks_of_modules": ("base", lora(target_modules=ALL, rank_pattern=RANKS)),
    "alpha_zero": ("base", lora(lora_alpha=0, target_modules=["q_proj"])),
    "gaussian": ("base", lora(target_modules=["q_proj"], init_lora_weights="gaussian")),
    "eva": ("base", lora(target_modules=["q_proj"], init_lora_weights="eva")),
    "orthogonal": ("base", lora(target_modules=["q_proj"], init_lora_weights="orthogonal")),
    "mica": ("base", lora(target_modules=["q_proj"], init_lora_weights="mica")),
    "random": ("base", lora(target_modules=["q_proj"], init_lora_weights=False)),
    "two_adapters": ("base", lora(target_modules=["q_proj"])),
    "other_names": ("base", lora(target_modules=["q_proj", "v_proj"])),
    "dora": ("base", lora(target_modules=["q_proj"], use_dora=True)),
    "oft_layers": ("base", lambda: OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj"], layers_to_transform=[1],
                                             use_cayley_neumann=True, task_type="CAUSAL_LM")),
    "lora_bias": ("base", lora(target_modules=["q_proj", "v_proj"], lora_bias=True)),
    "lora_bias_alone": ("base", lora(target_modules=["q_proj", "up_proj"], lora_bias=True)),
    "lora_bias_trained": ("base", lora(target_modules=["k_proj", "o_proj"], lora_bias=True, bias="lora_only")),
    "lora_bias_conv1d": ("conv1d", lora(target_modules=["c_attn", "c_fc", "c_proj"], lora_bias=True, use_rslora=True, fan_in_fan_out=True)),
    "token_indices": ("base", lora(target_modules=["q_proj"], trainable_token_indices=[32, 97, 101, 116])),
    "token_indices_tied": ("tied", lora(target_modules=["q_proj"], trainable_token_indices=[32, 97, 101, 116])),
    "embedding_saved": ("base", lora(target_modules=["q_proj"])),
    "embedding_saved_tied": ("tied", lora(target_modules=["q_proj"])),
    "new_tokens": ("base", lora(target_modules=["q_proj"])),
    "kasa": ("base", lora(target_modules=["q_proj"], kasa_config=KasaConfig())),
    "alora": ("base", lora(target_modules=["q_proj"], alora_invocation_tokens=[1, 40])),
    "tied_both": ("tied", lora(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "tied_input": ("tied", lora(target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    "fused_experts": ("experts", lora(target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "fused_down": ("experts", lora(target_modules=[], target_parameters=["model.layers.1.mlp.experts.down_proj"], use_rslora=True)),
    "fused_gate_up": ("experts", lora(target_modules=[], target_parameters=["experts.gate_up_proj"])),
    "tied_head": ("tied", lora(target_modules=["q_proj"], modules_to_save=["lm_head"])),
}


def make_base(name, tied):
    torch.manual_seed(1 + tied)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=128, attention_bias=not tied, tie_word_embeddings=bool(tied), bos_token_id=None, eos_token_id=256))
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.mul_(8)
            else:
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(DATA / name)
    (DATA / name / "generation_config.json").unlink(missing_ok=True)


def make_conv1d():
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_embd=16, n_layer=1, n_head=2, n_positions=128, bos_token_id=None, eos_token_id=256))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(DATA / "conv1d")
    (DATA / "conv1d" / "generation_config.json").unlink(missing_ok=True)


def make_experts():
    torch.manual_seed(4)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, moe_intermediate_size=8, num_experts=5, num_experts_per_tok=2,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=128, norm_topk_prob=True,
        bos_token_id=None, eos_token_id=256))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(8) if p.dim() > 1 else p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(DATA / "experts")
    (DATA / "experts" / "generation_config.json").unlink(missing_ok=True)


def loss_of(model):
    ids = torch.tensor([list(TEXT) + [256]])
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids).loss.double())


def tensors_changed(case, folder):
    """Changes of the file that save_pretrained does not make by itself."""
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    if case == "other_names":  # what other programs write of the same tensors
        names = [".default.weight", "model.", "_orig_mod."]
        out = {}
        for i, (k, v) in enumerate(sorted(tensors.items())):
            k = {0: k.replace(".weight", names[0]), 1: k.removeprefix("base_model.model."),
                 2: k.replace("base_model.model.", "base_model.model.base_model.model."),
                 3: k.replace("base_model.model.", "base_model.model._orig_mod.")}[i % 4]
            out[k] = v
        save_file(out, path)
    if case == "two_adapters":
        save_file({k.replace(".weight", f".{name}.weight"): v.clone() for k, v in tensors.items() for name in ("default", "other")}, path)


def make(case):
    name, config = CASES[case]
    folder = DATA / case
    shutil.rmtree(folder, ignore_errors=True)
    os.chdir(DATA)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")
    if case == "new_tokens":
        model.resize_token_embeddings(259, mean_resizing=False)
    peft = get_peft_model(model, config())
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if p.requires_grad or "lora_" in key or key.endswith("trainable_tokens_delta.default"):
                p.add_((1e-2 if "oft" in key else 0.3) * torch.randn_like(p))
            elif case.startswith("embedding_saved") and ("embed_tokens" in key or "lm_head" in key):
                p.add_(0.3 * torch.randn_like(p))
    saved = {"save_embedding_layers": True} if case.startswith("embedding_saved") else {}
    peft.save_pretrained(folder, **saved)
    (folder / "README.md").unlink(missing_ok=True)
    try:
        loss = repr(loss_of(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager"), folder)))
    except RuntimeError as error:
        print(case, "PEFT raises", str(error)[:80])
        loss = "refused"
    tensors_changed(case, folder)
    return f"{name} {case} {loss if case not in ('kasa', 'alora', 'two_adapters') else 'refused'}"


def merged_line(case):
    name = CASES[case][0]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager"), DATA / case)
    try:
        return f"{name} {case} {loss_of(model.merge_and_unload())!r}\n"
    except RuntimeError as error:
        print(case, "PEFT raises", str(error)[:80])
        return f"{name} {case} refused\n"


VALUES = {
    "task_type": "TOKEN_CLS", "peft_type": None, "auto_mapping": {"base_model_class": "LlamaForCausalLM"}, "peft_version": "0.21.2",
    "base_model_name_or_path": "base", "revision": "main", "inference_mode": True, "r": 5, "target_modules": ["k_proj"],
    "exclude_modules": ["layers.0.self_attn.q_proj"], "lora_alpha": 3, "lora_dropout": 0.1, "fan_in_fan_out": True, "bias": "all",
    "use_rslora": True, "modules_to_save": ["norm"], "init_lora_weights": "olora", "layers_to_transform": [1],
    "layers_pattern": ["layers"], "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 2}, "megatron_config": {"a": 1},
    "megatron_core": "other.core", "trainable_token_indices": [1, 2], "loftq_config": {"loftq_bits": 4}, "eva_config": {"rho": 2.0},
    "corda_config": {"corda_method": "kpm"}, "lora_ga_config": {"scale": "stable"}, "use_dora": True, "velora_config": {"scale": 1.0},
    "alora_invocation_tokens": [1, 40], "use_qalora": True, "qalora_group_size": 8, "monteclora_config": {"num_samples": 4},
    "layer_replication": [[0, 2], [1, 3]], "runtime_config": {"ephemeral_gpu_offload": True}, "lora_bias": True,
    "target_parameters": ["mlp.experts.gate_up_proj"], "use_bdlora": {"nblocks": 2}, "arrow_config": {"top_k": 2},
    "kasa_config": {"beta": 0.0001}, "ensure_weight_tying": True, "oft_block_size": 4, "module_dropout": 0.1, "init_weights": False,
    "coft": True, "eps": 0.1, "block_share": True, "use_cayley_neumann": False, "num_cayley_neumann_terms": 4,
}


def write_keys():
    lines = []
    for method, config in (("LORA", LoraConfig), ("OFT", OFTConfig)):
        for field in dataclasses.fields(config):
            value = method if field.name == "peft_type" else VALUES[field.name]
            lines.append(f"{method} {field.name} {json.dumps(value, separators=(',', ':'))}")
    (DATA / "keys.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    DATA.mkdir(exist_ok=True)
    make_base("base", 0)
    make_base("tied", 1)
    make_conv1d()
    make_experts()
    (DATA / "text.txt").write_bytes(TEXT)
    lines = [f"{name} - {loss_of(AutoModelForCausalLM.from_pretrained(DATA / name, attn_implementation='eager'))!r}" for name in ("base", "tied", "conv1d", "experts")]
    lines += [make(case) for case in CASES]
    (DATA / "losses.txt").write_text("\n".join(lines) + "\n")
    (DATA / "merges.txt").write_text("".join(merged_line(case) for case in CASES if case.startswith("lora_bias")))
    write_keys()
