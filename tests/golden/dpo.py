#!/usr/bin/env python3
"""Golden values of the DPO losses: TRL's own DPOTrainer._compute_loss on fixed log-probabilities.

The method runs as TRL ships it. Only its model is replaced, by a stand-in that gives the per-token
log-probabilities, and the reference's sums are handed over as precomputed columns. TRL's "sigmoid" has no
label smoothing; the smoothed case is the cDPO formula (arXiv:2305.18290, authors' note on
conservative DPO), computed here in torch.

Writes data/dpo.txt: one case per block, read by plugins/stages/dpo/test_dpo.c.
    case <loss_type> <beta> <label_smoothing> <pairs> <tokens>
    targets: [2P*T] 1 where a token is a target
    policy / reference: [2P*T] log-probabilities, chosen rows first, 0 where a token is no target
    loss: sum over pairs; grad: d loss / d policy; metrics: six sums, in the plugin's order
"""
import collections
import pathlib
import types

import torch
import torch.nn.functional as F
import trl
from trl import DPOTrainer

LENGTHS = ("ipo", "sigmoid_norm")  # losses that divide by the number of targets
OUT = pathlib.Path(__file__).parent / "data" / "dpo.txt"


class Stub:
    """What _compute_loss reads of the trainer."""


def trl_loss(loss_type, beta, smoothing, logp, ref, is_target):
    """(mean loss, metrics) of TRL for per-token log-probabilities [2P, T] in double precision, 0 where is_target is 0."""
    rows, tokens = logp.shape
    s = Stub()
    s.loss_types, s.loss_weights = [loss_type], [1.0]
    s.beta, s.label_smoothing = beta, smoothing
    s.f_divergence_type, s.f_alpha_divergence_coef = "reverse_kl", 0.5
    s.use_weighting, s.precompute_ref_logps = False, True
    s.ld_alpha = None
    s.aux_loss_enabled = False
    s.args = types.SimpleNamespace(discopop_tau=0.05)
    s.accelerator = types.SimpleNamespace(gather=lambda t: t, gather_for_metrics=lambda t: t,
                                          device=torch.device("cpu"))
    s.model = types.SimpleNamespace(training=True)
    s._metrics = {"train": collections.defaultdict(list)}
    s._total_train_tokens, s._tp_size = 0, 1
    ids = torch.zeros(rows, tokens + 1, dtype=torch.long)  # a first column that is the prompt
    mask = torch.ones_like(ids)
    completion = mask.clone()
    completion[:, 0] = 0
    completion[:, 1:] = is_target

    def model(**kwargs):
        zeros = torch.zeros_like(logp)  # of no interest here
        return types.SimpleNamespace(log_probs=logp, entropy=zeros, mean_logits=zeros,
                                     is_top1=zeros.bool())

    pairs = rows // 2
    summed = ref.sum(dim=1)
    inputs = {"input_ids": ids, "attention_mask": mask, "completion_mask": completion,
              "ref_chosen_logps": summed[:pairs], "ref_rejected_logps": summed[pairs:]}
    loss = DPOTrainer._compute_loss(s, model, inputs, False)
    return loss, {k: v[0] for k, v in s._metrics["train"].items()}


def smoothed(beta, e, logp, ref):
    pairs = logp.shape[0] // 2
    ratio = (logp - ref).sum(dim=1)
    z = beta * (ratio[:pairs] - ratio[pairs:])
    return (-(1 - e) * F.logsigmoid(z) - e * F.logsigmoid(-z)).mean()


def line(name, values):
    return name + " " + " ".join(repr(float(v)) for v in values) + "\n"


def main():
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)  # exo_pair takes the logarithm of label_smoothing in it
    text = f"# trl {trl.__version__} torch {torch.__version__}: DPOTrainer._compute_loss, float64\n"
    keys = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies",
            "logps/chosen", "logps/rejected"]
    cases = [("sigmoid", 0.1, 0.0, 3, 5), ("sigmoid", 0.7, 0.0, 1, 1), ("sigmoid", 0.3, 0.2, 4, 3),
             ("robust", 0.3, 0.1, 2, 4), ("hinge", 0.5, 0.0, 5, 4), ("nca_pair", 0.2, 0.0, 3, 2),
             ("ipo", 0.3, 0.0, 4, 5), ("ipo", 0.1, 0.0, 1, 1), ("sigmoid_norm", 2.0, 0.0, 4, 5),
             ("exo_pair", 0.4, 0.01, 3, 4), ("exo_pair", 0.1, 0.3, 2, 2), ("bco_pair", 0.3, 0.0, 3, 4),
             ("sppo_hard", 0.2, 0.0, 3, 4), ("apo_zero", 0.3, 0.0, 3, 4), ("apo_down", 0.3, 0.0, 3, 4),
             ("discopop", 0.1, 0.0, 3, 4)]
    for loss_type, beta, e, pairs, tokens in cases:
        logp = (-3 * torch.rand(2 * pairs, tokens, dtype=torch.float64) - 0.01).requires_grad_()
        ref = -3 * torch.rand(2 * pairs, tokens, dtype=torch.float64) - 0.01
        is_target = torch.ones(2 * pairs, tokens, dtype=torch.long)
        if loss_type in LENGTHS:  # rows of 1 to T targets
            for row in range(2 * pairs):
                is_target[row, 1 + row % tokens:] = 0
            logp = (logp.detach() * is_target).requires_grad_()
            ref = ref * is_target
        loss, metrics = trl_loss(loss_type, beta, e, logp, ref, is_target)
        if loss_type == "sigmoid" and e:
            loss = smoothed(beta, e, logp, ref)
        grad, = torch.autograd.grad(loss * pairs, logp)
        text += f"case {loss_type} {beta} {e} {pairs} {tokens}\n"
        text += line("targets", is_target.flatten())
        text += line("policy", logp.detach().flatten()) + line("reference", ref.flatten())
        text += line("loss", [loss.detach() * pairs]) + line("grad", grad.flatten())
        metrics["rewards/accuracies"] = round(metrics["rewards/accuracies"] * pairs) / pairs  # was f32
        text += line("metrics", [metrics[k] * pairs for k in keys])
    OUT.write_text(text)


if __name__ == "__main__":
    main()
