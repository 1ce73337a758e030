"""Training of models with experts by PyTorch: tests/core/train/test_oracle_experts.c replays it.

    python tests/golden/experts.py [NAME ...]

data/runs/experts_<name>.safetensors   50 steps of AdamW on models/<name>, whose config.json turns the load balancing
                                       loss on; decay on matrices only, constant rate, no clipping
    tokens targets  i32 [M,B,T]  step m takes batch m modulo M; targets are shifted, -1 is none
    loss            f64 [50]     transformers' loss: mean over the targets, and router_aux_loss_coef times aux_loss
    aux_loss        f64 [50]
    final.NAME      f32          some parameters after the last step, of experts as in models.py

data/runs/experts_lora/                a LoRA of rank 2 on the down projections of olmoe's experts, made by PEFT
    adapter_model.safetensors    its first values, with keys for each expert as other programs name modules: PEFT itself
                                 (target_parameters) keeps A [E*r,F] and B [C,r*E] of all experts together
    golden.safetensors           tokens, targets; loss f64 [20] of AdamW at a constant rate, without decay; final.KEY f32 of
                                 the adapter after the last step

data/runs/experts_losses.safetensors           10 steps of glm4_moe, whose row 1 of each batch is 5 tokens shorter, on
                                               loss + 0.02 balance + 0.01 z

    tokens targets doc_start     as above; the padding is a document of its own, without targets
    loss aux_loss z_loss         f64 [10]; balance: mean of the layers' E * sum over experts of (share of tokens that chose it,
                                 of the K largest of softmax) * (mean probability), z: mean of logsumexp(scores)^2 over layers
                                 and tokens; of tokens that are no padding
    final.NAME                   f32, the routers after the last step

data/runs/experts_bias.safetensors             8 steps of glm4_moe_groups, of two of these batches each; after a step
                                               bias += 0.02 * sign(mean load - load), loads of tokens that are no padding

    tokens targets doc_start     as above
    loss                         f64 [8]: mean over the targets of both batches
    final.NAME                   f32, the correction biases after the last step

fp32, eager attention, one thread. Made with torch 2.15.0, transformers 5.24.0, peft 0.21.2.
"""
import pathlib
import sys
import warnings

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data"
STEPS, M, B, T = 50, 5, 2, 16


def main():
    torch.set_num_threads(1)
    names = [n for n in sys.argv[1:] if n not in ("losses", "bias")] if sys.argv[1:] else ["mixtral", "olmoe", "qwen3_moe_step", "gpt_oss"]
    for name in names:
        model = AutoModelForCausalLM.from_pretrained(DATA / "models" / name, dtype=torch.float32,
                                                     attn_implementation="eager")
        assert model.config.output_router_logits
        matrices = [p for n, p in model.named_parameters() if p.dim() >= 2 and "bias" not in n]
        vectors = [p for n, p in model.named_parameters() if p.dim() < 2 or "bias" in n]  # as in transformers' Trainer
        adamw = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
        # batches of gpt_oss for which no value comes within 5e-6 of swiglu_limit, where rounding would decide its gradient
        g = torch.Generator().manual_seed(sum(map(ord, name)) + (3 if name == "gpt_oss" else 0))
        ids = torch.randint(0, model.config.vocab_size, (M, B, T), generator=g)
        losses, aux = [], []
        for step in range(STEPS):
            batch = ids[step % M]
            out = model(input_ids=batch, labels=batch, use_cache=False)
            adamw.zero_grad()
            out.loss.backward()
            adamw.step()
            losses.append(out.loss.double().item())
            aux.append(out.aux_loss.double().item())
        targets = torch.full_like(ids, -1)
        targets[:, :, :-1] = ids[:, :, 1:]
        kept = dict(model.named_parameters())
        key = "model.layers.1.mlp.experts.down_proj"
        file = key + ".weight" if name != "mixtral" else "model.layers.1.block_sparse_moe.experts.w2.weight"
        router = "model.layers.1.mlp.router.weight" if name == "gpt_oss" else "model.layers.1.mlp.gate.weight"
        out = {"tokens": ids.to(torch.int32), "targets": targets.to(torch.int32),
               "loss": torch.tensor(losses, dtype=torch.float64), "aux_loss": torch.tensor(aux, dtype=torch.float64),
               "final." + file: kept[key].detach().flatten(0, 1).contiguous(),
               "final." + router.replace("mlp", "block_sparse_moe" if name == "mixtral" else "mlp"):
                   kept[router].detach().contiguous()}
        if name == "gpt_oss":  # files hold these as they are here; in the graph a row is [E*O,I]
            out.pop("final." + file)
            for last in ("mlp.experts.down_proj", "mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias", "self_attn.sinks"):
                value = kept["model.layers.1." + last].detach()
                value = value.transpose(1, 2).flatten(0, 1) if value.dim() == 3 else value.flatten()
                out["final.model.layers.1." + last] = value.contiguous()
        path = DATA / "runs" / f"experts_{name}.safetensors"
        save_file(out, path, metadata={"format": "pt"})
        path.chmod(0o644)
        print(name, losses[0], losses[-1], aux[0], aux[-1])


def router_losses(scores, k, real):
    """Balance and z-loss, each the mean of the layers. scores: of each layer [N,E]; real: bool [N]."""
    balance, z = [], []
    for s in scores:
        s = s[real]
        p = torch.softmax(s, -1)
        chosen = torch.nn.functional.one_hot(p.topk(k, -1).indices, s.shape[1]).sum(1).to(p.dtype).mean(0)
        balance.append(s.shape[1] * (chosen * p.mean(0)).sum())
        z.append(torch.logsumexp(s, -1).square().mean())
    return torch.stack(balance).mean(), torch.stack(z).mean()


def losses():
    steps = 10
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "glm4_moe", dtype=torch.float32, attn_implementation="eager")
    scores = []
    gates = [m for m in model.modules() if type(m).__name__ == "Glm4MoeTopkRouter"]
    for gate in gates:
        gate.register_forward_hook(lambda m, args, out: scores.append(
            torch.nn.functional.linear(args[0].reshape(-1, m.weight.shape[1]).float(), m.weight.float())))
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                              weight_decay=0.0)
    ids, targets, doc_start, real = padded_batches(model.config.vocab_size, 11, 5)
    seen = {"loss": [], "aux_loss": [], "z_loss": []}
    for step in range(steps):
        scores.clear()
        logits = model(input_ids=ids[step % M], use_cache=False).logits.float()
        ce = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[step % M].flatten(), ignore_index=-1)
        balance, z = router_losses(scores, model.config.num_experts_per_tok, real)
        loss = ce + 0.02 * balance + 0.01 * z
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        for name, value in (("loss", loss), ("aux_loss", balance), ("z_loss", z)):
            seen[name].append(value.double().item())
    more = {name: torch.tensor(values, dtype=torch.float64) for name, values in seen.items()}
    more.update({"final." + n: p.detach().contiguous() for n, p in model.named_parameters() if n.endswith("mlp.gate.weight")})
    save("losses", ids, targets, doc_start, more)
    print("losses", {n: (v[0], v[-1]) for n, v in seen.items()}, len(gates), "routers")


def padded_batches(vocab, seed, short):
    """Tokens, targets and beginnings of documents; the padding of row 1 is a document of its own, without targets."""
    ids = torch.randint(0, vocab, (M, B, T), generator=torch.Generator().manual_seed(seed))
    targets, doc_start = torch.full_like(ids, -1), torch.zeros_like(ids)
    targets[:, :, :-1] = ids[:, :, 1:]
    targets[:, 1, T - short - 1:] = -1
    doc_start[:, 1, T - short:] = T - short
    return ids, targets, doc_start, doc_start[0].flatten() == 0


def save(name, ids, targets, doc_start, more):
    path = DATA / "runs" / f"experts_{name}.safetensors"
    save_file({"tokens": ids.to(torch.int32), "targets": targets.to(torch.int32), "doc_start": doc_start.to(torch.int32), **more}, path,
              metadata={"format": "pt"})
    path.chmod(0o644)


def counted(gate, chosen):
    gate.load += torch.bincount(chosen.flatten(), minlength=len(gate.load))


def bias():
    steps, rate = 8, 0.02
    model = AutoModelForCausalLM.from_pretrained(DATA / "models" / "glm4_moe_groups", dtype=torch.float32, attn_implementation="eager")
    ids, targets, doc_start, real = padded_batches(model.config.vocab_size, 12, 5)
    gates = [m for m in model.modules() if type(m).__name__ == "Glm4MoeTopkRouter"]
    for gate in gates:
        gate.load = torch.zeros(model.config.n_routed_experts)
        gate.register_forward_hook(lambda m, args, out: counted(m, out[2][real]))
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                              weight_decay=0.0)
    seen = []
    for step in range(steps):
        batches = [(2 * step + k) % M for k in range(2)]
        count, total = sum((targets[b] >= 0).sum() for b in batches), 0.0
        for b in batches:
            logits = model(input_ids=ids[b], use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[b].flatten(), ignore_index=-1, reduction="sum") / count
            loss.backward()
            total += loss.double().item()
        adamw.step()
        adamw.zero_grad()
        seen.append(total)
        for gate in gates:
            gate.e_score_correction_bias += rate * torch.sign(gate.load.mean() - gate.load)
            gate.load.zero_()
    final = {"final." + n: b.clone() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    final.update({"final." + n: p.detach().clone() for n, p in model.named_parameters() if n.endswith("e_score_correction_bias")})
    save("bias", ids, targets, doc_start, {"loss": torch.tensor(seen, dtype=torch.float64), **final})
    print("bias", seen[0], seen[-1], list(final))


def by_expert(model, experts, r):
    """PEFT's matrices by expert, under the keys of a module for each."""
    out = {}
    for name, p in model.named_parameters():
        if "lora_" not in name:
            continue
        stem, last = name.split(".experts.")[0], "lora_A" if "lora_A" in name else "lora_B"
        whole = p.detach()
        each = whole.reshape(experts, r, -1) if last == "lora_A" else whole.reshape(whole.shape[0], r, experts).permute(2, 0, 1)
        for e in range(experts):
            out[f"{stem}.experts.{e}.down_proj.{last}.weight"] = each[e].clone().contiguous()
    return out


def lora():
    steps, r = 20, 2
    folder = DATA / "runs" / "experts_lora"
    folder.mkdir(exist_ok=True)
    base = AutoModelForCausalLM.from_pretrained(DATA / "models" / "olmoe", dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(base, LoraConfig(r=r, lora_alpha=3, target_modules=[], target_parameters=["mlp.experts.down_proj"],
                                            task_type="CAUSAL_LM"))
    g = torch.Generator().manual_seed(5)
    trained = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for p in trained:
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
    experts = base.config.num_experts
    save_file(by_expert(model, experts, r), folder / "adapter_model.safetensors", metadata={"format": "pt"})
    ids = torch.randint(0, base.config.vocab_size, (M, B, T), generator=g)
    adamw = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0)
    losses = []
    for step in range(steps):
        out = model(input_ids=ids[step % M], labels=ids[step % M], use_cache=False)
        adamw.zero_grad()
        out.loss.backward()
        adamw.step()
        losses.append(out.loss.double().item())
    targets = torch.full_like(ids, -1)
    targets[:, :, :-1] = ids[:, :, 1:]
    golden = {"tokens": ids.to(torch.int32), "targets": targets.to(torch.int32), "loss": torch.tensor(losses, dtype=torch.float64)}
    golden.update({"final." + k: v for k, v in by_expert(model, experts, r).items()})
    save_file(golden, folder / "golden.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["down_proj"], "task_type": "CAUSAL_LM"}\n')
    for file in folder.iterdir():
        file.chmod(0o644)
    print("lora", losses[0], losses[-1], len(trained), "tensors")


if __name__ == "__main__":
    main()
    if not sys.argv[1:]:
        lora()
    for made in (losses, bias):
        if not sys.argv[1:] or made.__name__ in sys.argv[1:]:
            made()
