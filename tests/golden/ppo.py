#!/usr/bin/env python3
"""Golden values of the stage ppo: TRL's own GRPOTrainer._compute_loss on fixed log-probabilities, in float64.

The method runs as TRL ships it. Only its model is replaced, by given log-probabilities and entropies
per token. TRL's loss has no importance_sampling, no dro, no k1 and no k2, and no value function: those are
written here in torch from their definitions (Tinker's loss functions; J. Schulman, "Approximating KL
divergence"; generalized advantages from arXiv:1506.02438, as the PPOTrainer of older TRL computes and whitens them).

Writes data/ppo.txt, read by plugins/stages/ppo/test_ppo_golden.c. Blocks of three kinds:
    case <loss_type> <aggregation> <clip_low> <clip_high> <kl> <kl_coef> <entropy_coef> <rows> <tokens> <max_new_tokens>
    mask / logp / old / reference / entropy / advantages / weights: [rows*tokens]; 0 where mask is 0
    loss: of the step, times its number of targets; grad: its derivative by logp; metrics: kl, entropy, clipped
      weights: d loss / d (loss of the token), times the number of targets: TRL's aggregation
    group <scale_rewards> <group> <rewards>
    rewards; advantages; figures: reward, reward_std, frac_reward_zero_std
    gae <gamma> <lambda> <rows> <tokens>
    mask / values / rewards (per token); advantages; returns; whitened (advantages over the targets)
"""
import collections
import pathlib
import types

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


def gae(gamma, lam, rows, tokens):
    """Generalized advantages: backwards over the tokens of each completion."""
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
    text = f"gae {gamma} {lam} {rows} {tokens}\n"
    for name, value in (("mask", mask), ("values", values), ("rewards", rewards), ("advantages", advantages),
                        ("returns", returns), ("whitened", whitened)):
        text += line(name, value.flatten())
    return text


def main():
    torch.manual_seed(11)
    text = f"# trl {trl.__version__} torch {torch.__version__}: GRPOTrainer._compute_loss, float64\n"
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
    text += gae(1.0, 0.95, 4, 6) + gae(0.9, 1.0, 3, 5) + gae(0.99, 0.0, 2, 4)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
