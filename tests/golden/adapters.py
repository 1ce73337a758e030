#!/usr/bin/env python3
"""Adapters beside which parts of the model are trained, as PEFT trains them: tests/core/run/merge/test_oracle_adapters.c.

From the tiny models of models.py, written to data/adapters/CASE/:

  adapter_model.safetensors, adapter_config.json   the adapter that training begins with, as save_pretrained writes it.
                                                   Every trained tensor is moved by noise, so that nothing is what the base has.
  golden.safetensors   tokens, targets  i32 [B,T], the batch of every step
                       logits           f32 [B,T,V] of the adapter above
                       loss             f64 [100] of 100 steps of AdamW
                       grad.KEY         f32, of the first step, under the names of adapter_model.safetensors

The keys of an adapter that ties its embedding to the head have both names; the gradient is under the embedding's.

outer_*: LoRA and DoRA of the embedding and of the head. The file of outer_untied has the base's embedding and head, too
(save_embedding_layers). With ensure_weight_tying (outer_shared) PEFT makes two parameters of one storage, whose
gradients are not added; AdamW then takes two steps on it. The golden gradient is their sum, and the losses are those of
SGD, with which two steps on one storage are one step along the sum.

mica*: B is frozen, so that the file has the one with which PEFT begins: singular vectors of the base's weights.

merge_a, merge_b and merge.safetensors: two adapters of llama_untied, and the logits f32 [B,T,V] of the model into which
add_weighted_adapter merges them with the weights 0.7 and -0.4 and combination_type "cat". merge_c and linear.safetensors:
the same of merge_a and merge_c, which have one rank, with "linear".

Everything is fp32 with eager attention on the CPU. Made with torch 2.15.0, transformers 5.23.0, peft 0.21.2:
python tests/golden/adapters.py [CASE...]
"""
import pathlib
import shutil
import sys

import torch
from peft import LoraConfig, OFTConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
STEPS, LR = 100, 1e-3

LORA = dict(r=4, lora_alpha=6, task_type="CAUSAL_LM")
SGD_LR = 0.05
CASES = {
    "saved_untied": ("llama_untied", lambda: LoraConfig(**LORA, target_modules=["q_proj", "v_proj"],
                                                        modules_to_save=["embed_tokens", "lm_head", "norm"])),
    "saved_tied": ("llama_tied", lambda: LoraConfig(**LORA, target_modules="all-linear", ensure_weight_tying=True,
                                                    modules_to_save=["embed_tokens"])),
    "saved_conv1d": ("gpt2", lambda: LoraConfig(**LORA, target_modules=["c_attn"], fan_in_fan_out=True,
                                                modules_to_save=["mlp"], bias="lora_only")),
    "bias_all": ("qwen2", lambda: LoraConfig(**LORA, target_modules=["q_proj", "o_proj"], bias="all")),
    "bias_dora": ("qwen2", lambda: LoraConfig(**LORA, target_modules="all-linear", bias="lora_only", use_dora=True)),
    "bias_oft": ("qwen2", lambda: OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj", "up_proj"], bias="oft_only",
                                            modules_to_save=["lm_head"], use_cayley_neumann=True, task_type="CAUSAL_LM")),
    "outer_untied": ("llama_untied", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "lm_head", "q_proj"],
                                                        use_rslora=True, rank_pattern={"lm_head": 3}, alpha_pattern={"embed_tokens": 5})),
    "outer_apart": ("llama_tied", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "lm_head"])),
    "outer_shared": ("llama_tied", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "v_proj"], ensure_weight_tying=True)),
    "outer_softcap": ("gemma2", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "lm_head"])),
    "outer_scaled": ("gemma3", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "down_proj"])),
    "outer_conv1d": ("gpt2", lambda: LoraConfig(**LORA, target_modules=["wte", "c_attn"], fan_in_fan_out=True)),
    "outer_dora": ("llama_untied", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "q_proj"], use_dora=True)),
    "outer_dora_head": ("llama_untied", lambda: LoraConfig(**LORA, target_modules=["embed_tokens", "lm_head", "up_proj"], use_dora=True,
                                                           rank_pattern={"lm_head": 3})),
    "outer_dora_softcap": ("gemma2", lambda: LoraConfig(**LORA, target_modules=["lm_head"], use_dora=True)),
    "mica": ("llama_untied", lambda: LoraConfig(**LORA, target_modules=["q_proj", "up_proj", "down_proj", "embed_tokens", "lm_head"],
                                                init_lora_weights="mica")),
    "mica_conv1d": ("gpt2", lambda: LoraConfig(**LORA, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, init_lora_weights="mica")),
    "lora_bias": ("qwen2", lambda: LoraConfig(**LORA, target_modules=["q_proj", "up_proj"], lora_bias=True)),
}


def key_of(model, parameter):
    """The parameter's name in the file."""
    state = model.state_dict(keep_vars=True)
    kept = get_peft_model_state_dict(model, state_dict=state)
    return next((k for k, v in kept.items() if v is parameter), None)


def gradients(model, trained):
    """By key; what the head shares with the embedding is added to the gradient of the embedding's."""
    keyed = {key_of(model, p): p for _, p in trained}
    assert None not in keyed and len(keyed) == len(trained)
    out = {key: p.grad.clone() for key, p in keyed.items()}
    for key, p in keyed.items():
        for other, q in keyed.items():
            if other != key and q.data_ptr() == p.data_ptr() and "lora_embedding" in key:
                out[key] += out.pop(other).T
    return out


def make(case):
    name, config = CASES[case]
    torch.manual_seed(5)
    out = DATA / "adapters" / case
    shutil.rmtree(out, ignore_errors=True)
    base = AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(base, config())
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for _, p in trained:
            p += 0.05 * torch.randn_like(p)
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(out, save_embedding_layers=case == "outer_untied")
    (out / "README.md").unlink(missing_ok=True)
    batch = load_file(DATA / "models" / name / "golden.safetensors")["input_ids"].long()
    targets = torch.full_like(batch, -1)
    targets[:, :-1] = batch[:, 1:]
    golden = {"tokens": batch.int(), "targets": targets.int()}
    optimizer = torch.optim.AdamW([p for _, p in trained], lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    if case == "outer_shared":
        optimizer = torch.optim.SGD([p for _, p in trained], lr=SGD_LR)
    losses = []
    for step in range(STEPS):
        logits = model(input_ids=batch, use_cache=False).logits
        logp = torch.log_softmax(logits, -1)
        picked = logp.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        loss = -picked[targets >= 0].mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            golden["logits"] = logits.detach()
            golden |= {"grad." + key: g for key, g in gradients(model, trained).items()}
        losses.append(loss.item())
        optimizer.step()
    golden["loss"] = torch.tensor(losses, dtype=torch.float64)
    save_file({k: v.contiguous() for k, v in golden.items()}, out / "golden.safetensors")
    for path in out.iterdir():
        path.chmod(0o644)
    print(case, len(trained), "trained tensors, loss", losses[0], "to", losses[-1],
          sum(p.stat().st_size for p in out.iterdir()), "bytes")


def merge():
    torch.manual_seed(6)
    base = AutoModelForCausalLM.from_pretrained(DATA / "models/llama_untied", dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(base, LoraConfig(**LORA, target_modules=["q_proj", "down_proj"]), adapter_name="merge_a")
    model.add_adapter("merge_b", LoraConfig(r=2, lora_alpha=7, use_rslora=True, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p += 0.1 * torch.randn_like(p)
    model.save_pretrained(DATA / "adapters", selected_adapters=["merge_a", "merge_b"])
    (DATA / "adapters/README.md").unlink(missing_ok=True)
    model.add_weighted_adapter(["merge_a", "merge_b"], [0.7, -0.4], "both", combination_type="cat")
    model.set_adapter("both")
    batch = load_file(DATA / "models/llama_untied/golden.safetensors")["input_ids"].long()
    with torch.no_grad():
        logits = model.merge_and_unload(adapter_names=["both"])(input_ids=batch, use_cache=False).logits
    save_file({"logits": logits.contiguous()}, DATA / "adapters/merge.safetensors")
    for path in (DATA / "adapters").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def linear():
    torch.manual_seed(8)
    base = AutoModelForCausalLM.from_pretrained(DATA / "models/llama_untied", dtype=torch.float32, attn_implementation="eager")
    model = PeftModel.from_pretrained(base, DATA / "adapters/merge_a", adapter_name="merge_a")
    model.add_adapter("merge_c", LoraConfig(r=4, lora_alpha=9, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name and "merge_c" in name:
                p += 0.1 * torch.randn_like(p)
    model.peft_config["merge_c"].base_model_name_or_path = "llama_untied"
    model.save_pretrained(DATA / "adapters", selected_adapters=["merge_c"])
    (DATA / "adapters/README.md").unlink(missing_ok=True)
    model.add_weighted_adapter(["merge_a", "merge_c"], [0.7, -0.4], "both", combination_type="linear")
    model.set_adapter("both")
    batch = load_file(DATA / "models/llama_untied/golden.safetensors")["input_ids"].long()
    with torch.no_grad():
        logits = model.merge_and_unload(adapter_names=["both"])(input_ids=batch, use_cache=False).logits
    save_file({"logits": logits.contiguous()}, DATA / "adapters/linear.safetensors")
    for path in (DATA / "adapters").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[1:] or [*CASES, "merge", "linear"]:
        {"merge": merge, "linear": linear}.get(case, lambda: make(case))()
