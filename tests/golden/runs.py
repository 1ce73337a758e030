"""Whole runs as PyTorch makes them: tests/core/run/test_oracle_*.c replay them.

From the tiny models of models.py, written to data/runs/:

  adamw.safetensors   100 steps of AdamW on llama_tied      Trainer's recipe: decay on matrices only, cosine
  muon.safetensors    20 steps of Muon on llama_untied      with warm-up, clipping at 1, sums over 2 micro-batches
                                                            divided by their common count of targets
    tokens targets  i32 [M,B,T]  micro-batch m of the run is m modulo M; targets are shifted, -1 is none
    loss grad_norm lr param_norm  f64 [steps]; grad_norm before clipping, param_norm after the update
    final.NAME      f32          some parameters after the last step
  dpo_full, dpo_lora  TRL's loss on the models' log-probabilities, 4 steps of AdamW on one batch of pairs
    tokens targets  i32 [2P,T]   rows 0..P-1 chosen, then rejected, right-padded with token 0
    loss, rewards/chosen, ...    f64 [4], means over the pairs
    grad.NAME       f32          gradient of the mean at the last step
  lora/               a PEFT adapter of llama_untied on q_proj and v_proj, as save_pretrained writes it, and
                      golden.safetensors: logits, loss, grad.KEY of every A and B on models/llama_untied's batch
  nf4.safetensors     logits of llama_untied with its linear weights quantized and dequantized by bitsandbytes

Everything is fp32 with eager attention on the CPU. Muon's Newton-Schulz iteration runs in double; torch has it in
bf16, which is too coarse to compare with.

Made with torch 2.15.0, transformers 5.23.0, peft 0.21.2, trl 1.16.0, bitsandbytes 0.50.2, safetensors 0.8.0:
python tests/golden/runs.py
"""
import pathlib
import shutil

import quant  # first: keeps bitsandbytes' own CPU library from loading, see there
import bitsandbytes.functional as bnb
import torch
import torch.optim._muon
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

import dpo
import optimizers

DATA = pathlib.Path(__file__).parent / "data"
OUT = DATA / "runs"


def load(name):
    return AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32,
                                                attn_implementation="eager")


def write(name, tensors):
    path = OUT / (name + ".safetensors")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt"})
    path.chmod(0o644)
    print(name, {k: v.flatten()[-1].item() for k, v in tensors.items() if v.dtype == torch.float64})


def micro_batches(n, rows, length, vocab, seed):
    """Random tokens in which each is likely to follow from the last; a fifth of the targets is left out."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab, (n, rows, length), generator=g)
    for t in range(1, length):
        follows = torch.rand(n, rows, generator=g) < 0.6
        tokens[:, :, t] = torch.where(follows, (tokens[:, :, t - 1] * 5 + 3) % vocab, tokens[:, :, t])
    targets = torch.full_like(tokens, -1)
    targets[:, :, :-1] = tokens[:, :, 1:]
    targets[torch.rand(targets.shape, generator=g) < 0.2] = -1
    return tokens, targets


def logprobs(model, tokens, targets):
    """[B,T], 0 where the target is -1."""
    logp = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits, -1)
    return logp.gather(-1, targets.clamp(min=0)[..., None])[..., 0] * (targets >= 0)


def norm(params):
    return sum(p.detach().double().square().sum() for p in params).sqrt()


def train(name, model, optimizers_of, steps, warmup, seed, keep):
    tokens, targets = micro_batches(6, 2, 16, model.config.vocab_size, seed)
    opts = optimizers_of(model)
    schedules = [get_cosine_schedule_with_warmup(o, warmup, steps) for o in opts]
    seen = {k: [] for k in ("loss", "grad_norm", "lr", "param_norm")}
    micro = 0
    for _ in range(steps):
        batch = [(micro + k) % len(tokens) for k in range(2)]
        micro += 2
        count = sum((targets[k] >= 0).sum() for k in batch)
        model.zero_grad()
        loss = 0.0
        for k in batch:
            part = -logprobs(model, tokens[k], targets[k]).sum() / count
            part.backward()
            loss += part.item()
        seen["loss"].append(loss)
        seen["lr"].append(schedules[0].get_last_lr()[0])
        seen["grad_norm"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        for o, s in zip(opts, schedules):
            o.step()
            s.step()
        seen["param_norm"].append(norm(model.parameters()).item())
    tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in seen.items()}
    named = dict(model.named_parameters())
    tensors.update({"final." + k: named[k] for k in keep})
    tensors.update(tokens=tokens.int(), targets=targets.int())
    write(name, tensors)
    print(name, "loss", seen["loss"][0], "to", seen["loss"][-1])


def adamw(params, lr, decay, eps=1e-8):
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=eps, foreach=False)


def with_muon(model):
    torch.optim._muon._zeropower_via_newtonschulz = lambda g, *_: optimizers.newton_schulz(g).to(g.dtype)
    matrix = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n and "lm_head" not in n]
    rest = [p for p in model.parameters() if all(p is not q for q in matrix)]
    return [torch.optim.Muon(matrix, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"),
            adamw(rest, 3e-3, 0.05, eps=1e-10)]


def preference(name, policy, reference, trained, key):
    tokens, _ = micro_batches(1, 6, 20, policy.config.vocab_size, 31)
    tokens = tokens[0]
    targets = torch.full_like(tokens, -1)
    for r in range(6):  # pair p: prompt of 4 + p tokens, completions of different lengths
        p = r % 3
        prompt, length = 4 + p, 20 - 3 * p - (2 if r >= 3 else 0)
        tokens[r, :prompt] = tokens[p, :prompt]
        tokens[r, length:] = 0
        targets[r, prompt - 1:length - 1] = tokens[r, prompt:length]
    with torch.no_grad():
        ref = reference(tokens, targets)
    opt = adamw([p for _, p in trained], 2e-3, 0.0)
    seen = {}
    for step in range(4):
        opt.zero_grad()
        loss, metrics = dpo.trl_loss("sigmoid", 0.1, 0.0, logprobs(policy, tokens, targets), ref)
        loss.backward()
        for k in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen",
                  "logps/rejected"):
            seen.setdefault(k, []).append(metrics[k])
        seen.setdefault("loss", []).append(loss.item())
        grads = {"grad." + key(n): p.grad.clone() for n, p in trained}
        torch.nn.utils.clip_grad_norm_([p for _, p in trained], 1.0)
        opt.step()
    tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in seen.items()}
    write(name, dict(tensors, tokens=tokens.int(), targets=targets.int(), **grads))


def dpo_full():
    policy, frozen = load("llama_tied"), load("llama_tied")
    preference("dpo_full", policy, lambda x, y: logprobs(frozen, x, y), list(policy.named_parameters()), lambda n: n)


def file_key(name):
    return name.replace(".default", "")


def adapted():
    return PeftModel.from_pretrained(load("llama_untied"), OUT / "lora", is_trainable=True)


def trained_of(model):
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def lora():
    torch.manual_seed(17)
    config = LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(load("llama_untied"), config)
    for n, p in trained_of(model):
        if "lora_B" in n:
            torch.nn.init.normal_(p, std=0.1)
    model.peft_config["default"].base_model_name_or_path = "llama_untied"
    model.save_pretrained(OUT / "lora")
    (OUT / "lora" / "README.md").unlink()
    ids = load_file(DATA / "models" / "llama_untied" / "golden.safetensors")["input_ids"].long()
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    write("lora/golden", dict({"grad." + file_key(n): p.grad for n, p in trained_of(model)}, logits=out.logits,
                              loss=out.loss.double().reshape(1)))
    for file in (OUT / "lora").iterdir():
        file.chmod(0o644)


def dpo_lora():
    policy = adapted()

    def reference(x, y):
        with policy.disable_adapter():
            return logprobs(policy, x, y)

    preference("dpo_lora", policy, reference, trained_of(policy), file_key)


def nf4():
    model = load("llama_untied")
    for name, p in model.named_parameters():
        if p.dim() == 2 and "layers" in name:
            packed, state = bnb.quantize_4bit(p.data, quant_type="nf4", compress_statistics=True)
            p.data = bnb.dequantize_4bit(packed, state)
    ids = load_file(DATA / "models" / "llama_untied" / "golden.safetensors")["input_ids"].long()
    write("nf4", {"logits": model(input_ids=ids, use_cache=False).logits})


if __name__ == "__main__":
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    train("adamw", load("llama_tied"), lambda m: [adamw(list(m.parameters()), 2e-3, 0.1)], 100, 10, 21,
          ["model.layers.1.mlp.down_proj.weight", "model.norm.weight"])
    train("muon", load("llama_untied"), with_muon, 20, 4, 22,
          ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight"])
    dpo_full()
    lora()
    dpo_lora()
    nf4()
