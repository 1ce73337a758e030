#!/usr/bin/env python3
"""DPO whose reference is another adapter over the same base: tests/core/run/folder/test_reference_adapter.c.

One base with two adapters of PEFT, as TRL does it with model_adapter_name and ref_adapter_name: the policy's trains, the
reference's is frozen. The adapters are those of adapters.py, the pairs those of runs.py (dpo_lora). Written to
data/adapters/reference_NAME.safetensors:

  loss, rewards/.., logps/..   f64 [4] of four steps of AdamW (lr 2e-3, betas 0.9 and 0.95, gradient norm at most 1)
  grad.KEY                     f32, of the last step

Loss and rewards are written out here (arXiv:2305.18290, equation 7). Everything is fp32 on the CPU. Made with torch
2.15.0, transformers 5.23.0, peft 0.21.2: python tests/golden/reference_adapter.py
"""
import pathlib

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
ADAPTERS = DATA / "adapters"
BETA = 0.1
CASES = {"other": ("outer_untied", "merge_b"), "outer": ("merge_a", "outer_untied")}


def logprobs(model, tokens, targets):
    logp = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits, -1)
    picked = logp.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return (picked * (targets >= 0)).sum(-1)


def make(name, policy, reference):
    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(DATA / "models/llama_untied", dtype=torch.float32, attn_implementation="eager")
    model = PeftModel.from_pretrained(base, ADAPTERS / policy, adapter_name="policy", is_trainable=True)
    model.load_adapter(ADAPTERS / reference, adapter_name="reference")
    pairs = load_file(DATA / "runs/dpo_lora.safetensors")
    tokens, targets = pairs["tokens"].long(), pairs["targets"].long()
    model.set_adapter("reference")
    with torch.no_grad():
        ref = logprobs(model, tokens, targets)
    model.set_adapter("policy")
    trained = [(n, p) for n, p in model.named_parameters() if ".policy" in n and "lora_" in n]
    for _, p in model.named_parameters():
        p.requires_grad_(False)
    for _, p in trained:
        p.requires_grad_(True)
    opt = torch.optim.AdamW([p for _, p in trained], lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
    seen, out = {}, {}
    for _ in range(4):
        opt.zero_grad()
        logp = logprobs(model, tokens, targets)
        rewards = BETA * (logp - ref)
        chosen, rejected = rewards[:3], rewards[3:]
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        loss.backward()
        figures = {"loss": loss, "rewards/chosen": chosen.mean(), "rewards/rejected": rejected.mean(),
                   "rewards/margins": (chosen - rejected).mean(), "rewards/accuracies": (chosen > rejected).float().mean(),
                   "logps/chosen": logp[:3].mean(), "logps/rejected": logp[3:].mean()}
        for k, v in figures.items():
            seen.setdefault(k, []).append(v.item())
        state = get_peft_model_state_dict(model, state_dict=model.state_dict(keep_vars=True), adapter_name="policy")
        keys = {id(v): k for k, v in state.items()}
        out = {"grad." + keys[id(p)]: p.grad.clone() for _, p in trained}
        torch.nn.utils.clip_grad_norm_([p for _, p in trained], 1.0)
        opt.step()
    out |= {k: torch.tensor(v, dtype=torch.float64) for k, v in seen.items()}
    path = ADAPTERS / f"reference_{name}.safetensors"
    save_file({k: v.contiguous() for k, v in out.items()}, path)
    path.chmod(0o644)
    print(name, len(trained), "trained tensors, loss", seen["loss"], path.stat().st_size, "bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (policy, reference) in CASES.items():
        make(name, policy, reference)
