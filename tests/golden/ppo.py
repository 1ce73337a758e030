#!/usr/bin/env python3
"""Golden values of the stage ppo: TRL's own GRPOTrainer._compute_loss on fixed log-probabilities, in float64.

The method runs as TRL ships it. Only its model is replaced, by given log-probabilities and entropies
per token. TRL's loss has no importance_sampling, no dro, no k1 and no k2: those are written here in torch from
their definitions (Tinker's loss functions; J. Schulman, "Approximating KL divergence").

TRL has no value function any more. What needs one, and the adaptive coefficient of the divergence, come from the
methods of PPOTrainer and the class AdaptiveKLController of TRL 0.11.4, which run as it ships them:
    pip download --no-deps trl==0.11.4 && unzip trl-0.11.4-py3-none-any.whl -d DIR
    TRL_0_11=DIR/trl tests/golden/ppo.py

Writes data/ppo.txt, read by the tests in plugins/stages/ppo. Blocks of six kinds:
    case <loss_type> <aggregation> <clip_low> <clip_high> <kl> <kl_coef> <entropy_coef> <rows> <tokens> <max_new_tokens>
    mask / logp / old / reference / entropy / advantages / weights: [rows*tokens]; 0 where mask is 0
    loss: of the step, times its number of targets; grad: its derivative by logp; metrics: kl, entropy, clipped
      weights: d loss / d (loss of the token), times the number of targets: TRL's aggregation
    group <scale_rewards> <group> <rewards>
    rewards; advantages; figures: reward, reward_std, frac_reward_zero_std
    gae <gamma> <lambda> <rows> <tokens>
    mask / values / rewards (per token); advantages; returns; whitened (advantages over the targets)
    critic <clip> <vf_coef> <cliprange_value> <rows> <tokens>
    mask / logp / old / values / old_values / advantages / returns: [rows*tokens]
    loss: of the step, times its number of targets; grad, grad_values: its derivatives by logp and values
    critic_metrics: value loss (without vf_coef), share of clipped values, share of clipped ratios; times the targets
    penalty <kl> <kl_coef> <gamma> <lambda> <rows> <tokens>
    mask / logp / reference / values: [rows*tokens]; scores: [rows]
    returns; whitened; kl: mean over the completions of the sum over their tokens
    controller <kl_coef> <target> <horizon> <completions> <n>
    measured: [n] divergences; coefficients: [n] after each
"""
import ast
import collections
import os
import pathlib
import types
import typing
import warnings

import numpy as np
import torch
import trl
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

OUT = pathlib.Path(__file__).parent / "data" / "ppo.txt"
AGGREGATIONS = {"sequence": "grpo", "token": "bnpo", "constant": "dr_grpo"}  # TRL's loss_type


class Stub:
    """What _compute_loss reads of the trainer."""


def trl_loss(loss_type, low, high, beta, entropy_coef, max_new, mask, logp, old, ref, entropy, advantages):
    """(loss, metrics) of TRL for one step of one micro-batch."""
    s = Stub()
    s.loss_type, s.beta, s.max_completion_length = loss_type, beta, max_new
    s.epsilon_low, s.epsilon_high = low, high
    s.top_entropy_quantile, s.off_policy_mask_threshold = 1.0, None
    s.importance_sampling_level = "token"
    s.aux_loss_enabled = s.use_vllm = s.use_adaptive_entropy = False
    s.entropy_coef, s._entropy_bonus_enabled = entropy_coef, entropy_coef != 0.0
    s.current_gradient_accumulation_steps = 1
    s.args = types.SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1)
    s.accelerator = types.SimpleNamespace(gather=lambda t: t, gather_for_metrics=lambda t: t, num_processes=1,
                                          reduce=lambda t, reduction: t, sync_gradients=True,
                                          device=torch.device("cpu"))
    s.model = types.SimpleNamespace(training=True)
    s._metrics = {"train": collections.defaultdict(list)}
    s._get_per_token_logps_and_entropies = lambda *a, **k: (logp, entropy, None)
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = {"prompt_ids": ids[:, :1], "prompt_mask": torch.ones_like(ids[:, :1]), "completion_ids": ids,
              "completion_mask": mask, "advantages": advantages, "old_per_token_logps": old,
              "ref_per_token_logps": ref, "num_items_in_batch": mask.sum()}
    loss = GRPOTrainer._compute_loss(s, None, inputs)
    return loss, {k: v[0] for k, v in s._metrics["train"].items()}


def weights_of(aggregation, max_new, mask):
    """TRL's aggregation: the derivative of its loss by the loss of a token, times the number of targets."""
    a = torch.ones(mask.shape, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(mask.shape, dtype=torch.float64)
    loss, _ = trl_loss(AGGREGATIONS[aggregation], 0.2, 0.2, 0.0, 0.0, max_new, mask, zero, zero, None, zero, a)
    grad, = torch.autograd.grad(loss, a)
    return -grad * mask.sum()


def kl_of(kind, logp, ref):
    d = ref - logp
    return {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - 1 - d}[kind]


def line(name, values):
    return name + " " + " ".join(repr(float(v)) for v in values) + "\n"


def make(loss_type, aggregation, low, high, kl, kl_coef, entropy_coef, rows, tokens, max_new):
    mask = torch.zeros(rows, tokens, dtype=torch.long)
    for row in range(rows):
        mask[row, :1 + (3 * row + tokens - 1) % tokens] = 1
    if rows > 3:
        mask[3] = 0  # a truncated completion, which is masked
    m = mask.double()
    logp = (-3 * torch.rand(rows, tokens, dtype=torch.float64) - 0.01)
    old = (logp + 0.6 * torch.randn(rows, tokens, dtype=torch.float64)) * m
    ref = (logp + 0.5 * torch.randn(rows, tokens, dtype=torch.float64)) * m
    logp = (logp * m).requires_grad_()
    entropy = torch.rand(rows, tokens, dtype=torch.float64) * m
    advantages = torch.randn(rows, dtype=torch.float64)
    weights = weights_of(aggregation, max_new, mask)
    if loss_type in ("ppo", "cispo") and kl == "k3":
        name = "cispo" if loss_type == "cispo" else AGGREGATIONS[aggregation]
        bound = 1 + high if loss_type == "cispo" else high  # TRL's epsilon_high of cispo is the bound itself
        loss, metrics = trl_loss(name, low, bound, kl_coef, entropy_coef, max_new, mask, logp, old, ref, entropy,
                                 advantages)
        clipped = metrics["cispo_clip_ratio" if loss_type == "cispo" else "clip_ratio/region_mean"]
    else:
        a = advantages[:, None]
        ratio = torch.exp(logp - old)
        clipped = 0.0
        if loss_type == "ppo":
            loss = -torch.min(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
            out = ((ratio < 1 - low) & (a < 0)) | ((ratio > 1 + high) & (a > 0))
            clipped = (out * mask).sum() / mask.sum()
        elif loss_type == "importance_sampling":
            loss = -ratio * a
        else:  # dro, whose beta is 0.1
            loss = -(logp * a - 0.5 * 0.1 * (logp - old) ** 2)
        loss = loss + kl_coef * kl_of(kl, logp, ref)
        loss = (loss * weights).sum() / mask.sum() - entropy_coef * (entropy * mask).sum() / mask.sum()
    n = mask.sum()
    grad, = torch.autograd.grad(loss * n, logp)
    mean_kl = (kl_of(kl, logp.detach(), ref) * m).sum() / n
    text = f"case {loss_type} {aggregation} {low} {high} {kl} {kl_coef} {entropy_coef} {rows} {tokens} {max_new}\n"
    for name, value in (("mask", m), ("logp", logp.detach()), ("old", old), ("reference", ref), ("entropy", entropy),
                        ("advantages", advantages[:, None] * m), ("weights", weights)):
        text += line(name, value.flatten())
    text += line("loss", [loss.detach() * n]) + line("grad", grad.flatten())
    return text + line("metrics", [mean_kl * n, (entropy * m).sum(), clipped * n])


def group(scale, size, rewards):
    """The lines of GRPOTrainer._generate_and_score_completions that compute advantages (sum_then_normalize)."""
    rewards = torch.tensor(rewards, dtype=torch.float64)
    mean = torch.nanmean(rewards.view(-1, size), dim=1).repeat_interleave(size, dim=0)
    if scale in ("group", "none"):
        std = nanstd(rewards.view(-1, size), dim=1).repeat_interleave(size, dim=0)
    else:
        std = nanstd(rewards).expand_as(rewards)
    advantages = rewards - mean
    if scale != "none":
        advantages = advantages / (std + 1e-4)
    is_zero = torch.isclose(std, torch.zeros_like(std))
    return (f"group {scale} {size} {len(rewards)}\n" + line("rewards", rewards) + line("advantages", advantages)
            + line("figures", [rewards.mean(), nanstd(rewards), is_zero.double().mean()]))


def gae(old, gamma, lam, rows, tokens):
    """Generalized advantages, arXiv:1506.02438 eq. 16: backwards over the tokens of each completion; as TRL 0.11.4 has them."""
    values = torch.randn(rows, tokens, dtype=torch.float64)
    rewards = 0.1 * torch.randn(rows, tokens, dtype=torch.float64)
    mask = torch.zeros(rows, tokens, dtype=torch.float64)
    for row in range(rows):
        n = 1 + (3 * row + tokens - 1) % tokens
        mask[row, :n] = 1
        rewards[row, n - 1] += torch.randn(1, dtype=torch.float64)[0]  # the score comes with the last token
    values, rewards = values * mask, rewards * mask
    last, advantages = torch.zeros(rows, dtype=torch.float64), torch.zeros_like(values)
    for t in reversed(range(tokens)):
        following = values[:, t + 1] if t + 1 < tokens else torch.zeros(rows, dtype=torch.float64)
        delta = rewards[:, t] + gamma * following - values[:, t]
        last = (delta + gamma * lam * last) * mask[:, t]
        advantages[:, t] = last
    returns = (advantages + values) * mask
    n = mask.sum()
    mean = (advantages * mask).sum() / n
    variance = ((advantages - mean) ** 2 * mask).sum() / n * n / (n - 1)
    whitened = (advantages - mean) * torch.rsqrt(variance + 1e-8) * mask
    _, of_trl, returns_of_trl = old.compute_advantages(trainer(old, gamma=gamma, lam=lam), values, rewards, mask)
    assert torch.allclose(of_trl * mask, whitened, rtol=0, atol=1e-13)
    assert torch.allclose(returns_of_trl * mask, returns, rtol=0, atol=1e-13)
    text = f"gae {gamma} {lam} {rows} {tokens}\n"
    for name, value in (("mask", mask), ("values", values), ("rewards", rewards), ("advantages", advantages),
                        ("returns", returns), ("whitened", whitened)):
        text += line(name, value.flatten())
    return text


def old_trl():
    """Functions and classes of TRL 0.11.4, by name. Its modules do not import with today's transformers."""
    folder = pathlib.Path(os.environ["TRL_0_11"])
    names = dict(vars(typing), torch=torch, np=np, warnings=warnings)
    wanted = {"core.py": ["masked_mean", "masked_var", "masked_whiten", "clip_by_value", "entropy_from_logits", "flatten_dict"],
              "trainer/utils.py": ["AdaptiveKLController"],
              "trainer/ppo_trainer.py": ["compute_rewards", "_kl_penalty", "compute_advantages", "loss"]}
    for file, list_ in wanted.items():
        found = [n for n in ast.walk(ast.parse((folder / file).read_text()))
                 if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in list_]
        assert len(found) == len(list_), file
        names["MutableMapping"] = collections.abc.MutableMapping
        exec(compile(ast.Module(found, []), file, "exec"), names)
    return types.SimpleNamespace(**{n: names[n] for list_ in wanted.values() for n in list_})


def trainer(old, **config):
    """What the methods of the old PPOTrainer read of it."""
    s = Stub()
    s.config = types.SimpleNamespace(whiten_rewards=False, ratio_threshold=1e9, **config)
    s._kl_penalty = lambda logp, ref: old._kl_penalty(s, logp, ref)
    return s


def masks(rows, tokens):
    mask = torch.zeros(rows, tokens, dtype=torch.float64)
    for row in range(rows):
        mask[row, :1 + (3 * row + tokens - 1) % tokens] = 1
    return mask


def critic(old, clip, vf_coef, cliprange_value, rows, tokens):
    """PPOTrainer.loss of TRL 0.11.4: the clipped policy loss and the clipped value loss."""
    def rand():
        return torch.randn(rows, tokens, dtype=torch.float64)
    mask = masks(rows, tokens)
    logp = -3 * torch.rand(rows, tokens, dtype=torch.float64) - 0.01
    old_logp = (logp + 0.4 * rand()) * mask
    old_values = rand() * mask
    values = ((old_values + 0.4 * rand()) * mask).requires_grad_()
    returns, advantages = rand() * mask, rand() * mask
    logp = (logp * mask).requires_grad_()
    s = trainer(old, cliprange=clip, cliprange_value=cliprange_value, vf_coef=vf_coef)
    pg, vf, stats = old.loss(s, old_logp, old_values, torch.zeros(rows, tokens, 2), values, logp, mask, advantages, returns)
    n = mask.sum()
    loss = (pg + vf) * n
    grads = torch.autograd.grad(loss, [logp, values])
    text = f"critic {clip} {vf_coef} {cliprange_value} {rows} {tokens}\n"
    for name, value in (("mask", mask), ("logp", logp.detach()), ("old", old_logp), ("values", values.detach()),
                        ("old_values", old_values), ("advantages", advantages), ("returns", returns)):
        text += line(name, value.flatten())
    text += line("loss", [loss.detach()]) + line("grad", grads[0].flatten()) + line("grad_values", grads[1].flatten())
    return text + line("critic_metrics", [n * stats[k] for k in ("loss/value", "val/clipfrac", "policy/clipfrac")])


def penalty(old, kl, coef, gamma, lam, rows, tokens):
    """compute_rewards and compute_advantages of TRL 0.11.4; its kl_penalty has no k3, which is kl_of's."""
    mask = masks(rows, tokens)
    logp = (-3 * torch.rand(rows, tokens, dtype=torch.float64) - 0.01) * mask
    ref = (logp + 0.5 * torch.randn(rows, tokens, dtype=torch.float64)) * mask
    values = torch.randn(rows, tokens, dtype=torch.float64) * mask
    scores = torch.randn(rows, dtype=torch.float64)
    s = trainer(old, kl_penalty={"k1": "kl", "k2": "mse"}.get(kl), gamma=gamma, lam=lam)
    s.kl_ctl = types.SimpleNamespace(value=coef)
    if kl == "k3":
        s._kl_penalty = lambda a, b: kl_of("k3", a, b)
    rewards, _, kls = old.compute_rewards(s, scores, logp, ref, mask)
    _, whitened, returns = old.compute_advantages(s, values, rewards, mask)
    text = f"penalty {kl} {coef} {gamma} {lam} {rows} {tokens}\n"
    for name, value in (("mask", mask), ("logp", logp), ("reference", ref), ("values", values)):
        text += line(name, value.flatten())
    text += line("scores", scores) + line("returns", (returns * mask).flatten())
    return text + line("whitened", (whitened * mask).flatten()) + line("kl", [(kls * mask).sum(-1).mean()])


def controller(old, coef, target, horizon, completions, measured):
    c = old.AdaptiveKLController(coef, target, horizon)
    values = []
    for kl in measured:
        c.update(kl, completions)
        values.append(c.value)
    return (f"controller {coef} {target} {horizon} {completions} {len(measured)}\n" + line("measured", measured)
            + line("coefficients", values))


def main():
    old = old_trl()
    torch.manual_seed(11)
    text = f"# trl {trl.__version__} torch {torch.__version__}: GRPOTrainer._compute_loss, float64; trl 0.11.4: PPOTrainer\n"
    for case in [("ppo", "token", 0.2, 0.2, "k3", 0.0, 0.0, 3, 5, 8), ("ppo", "sequence", 0.2, 0.2, "k3", 0.0, 0.0, 5, 4, 8),
                 ("ppo", "constant", 0.2, 0.28, "k3", 0.0, 0.0, 4, 6, 9), ("ppo", "sequence", 0.1, 0.3, "k3", 0.2, 0.0, 5, 5, 5),
                 ("ppo", "token", 0.2, 0.2, "k3", 0.04, 0.01, 4, 5, 8), ("ppo", "sequence", 0.2, 0.2, "k3", 0.0, 0.05, 5, 4, 4),
                 ("ppo", "constant", 0.3, 0.3, "k3", 0.1, 0.02, 3, 3, 16), ("ppo", "token", 0.2, 0.2, "k1", 0.1, 0.0, 3, 5, 8),
                 ("ppo", "sequence", 0.2, 0.2, "k2", 0.1, 0.0, 3, 5, 8), ("cispo", "token", 0.2, 0.5, "k3", 0.0, 0.0, 4, 6, 8),
                 ("cispo", "token", 0.2, 0.2, "k3", 0.1, 0.01, 3, 5, 8),
                 ("importance_sampling", "token", 0.2, 0.2, "k3", 0.0, 0.0, 3, 5, 8),
                 ("importance_sampling", "constant", 0.2, 0.2, "k2", 0.3, 0.1, 4, 4, 6),
                 ("dro", "token", 0.2, 0.2, "k3", 0.0, 0.0, 3, 5, 8), ("dro", "sequence", 0.2, 0.2, "k3", 0.1, 0.0, 4, 4, 6)]:
        text += make(*case)
    rewards = [1.0, 0.0, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5, -2.0, 3.0, 0.0, 0.125]
    for scale in ("group", "batch", "none"):
        text += group(scale, 4, rewards)
    text += group("group", 2, [0.3, 0.3, 1.0, 0.0])
    text += gae(old, 1.0, 0.95, 4, 6) + gae(old, 0.9, 1.0, 3, 5) + gae(old, 0.99, 0.0, 2, 4)
    for case in [(0.2, 0.1, 0.2, 4, 6), (0.2, 1.0, 0.5, 5, 5), (0.1, 0.5, 0.05, 3, 7), (0.3, 2.0, 0.2, 2, 5)]:
        text += critic(old, *case)
    for case in [("k1", 0.2, 1.0, 0.95, 4, 6), ("k2", 0.1, 0.99, 0.9, 5, 5), ("k3", 0.05, 1.0, 1.0, 3, 7),
                 ("k1", 0.0, 0.9, 0.0, 3, 4)]:
        text += penalty(old, *case)
    text += controller(old, 0.2, 6.0, 10000, 64, [0.0, 5.0, 6.0, 6.6, 30.0, -1.0])
    text += controller(old, 0.05, 0.5, 100, 100, [0.9, 0.49, 0.52, 3.0, 0.1])
    OUT.write_text(text)


if __name__ == "__main__":
    main()
