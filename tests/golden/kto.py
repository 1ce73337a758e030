#!/usr/bin/env python3
"""Golden values of the KTO losses: TRL's own KTOTrainer._compute_loss on fixed log-probabilities.

The method runs as TRL ships it. Only its model is replaced, by a stand-in that gives the per-token
log-probabilities of the matched and of the mismatched rows; the reference's sums are handed over as
precomputed columns.

Writes data/kto.txt: one case per block, read by plugins/stages/kto/test_kto.c.
    case <loss_type> <beta> <desirable_weight> <undesirable_weight> <examples> <tokens>
    labels: [P] 1 desirable, 0 not
    policy / reference: [2P*T] log-probabilities, matched rows first
    loss: sum over examples; grad: d loss / d policy
    metrics: rewards/chosen rewards/rejected rewards/margins logps/chosen logps/rejected kl; nan where TRL has none
"""
import collections
import functools
import math
import pathlib
import types

import torch
import trl
from trl import KTOTrainer

OUT = pathlib.Path(__file__).parent / "data" / "kto.txt"
KEYS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "kl"]


class Stub:
    """What _compute_loss reads of the trainer."""


def trl_loss(loss_type, beta, weights, labels, logp, ref):
    """(mean loss, metrics) of TRL for per-token log-probabilities [2P, T] in double precision."""
    rows, tokens = logp.shape
    examples = rows // 2
    s = Stub()
    s.loss_type, s.beta = loss_type, beta
    s.desirable_weight, s.undesirable_weight = weights
    s.calculate_KL = loss_type != "apo_zero_unpaired"
    s.precompute_ref_logps, s.aux_loss_enabled = True, False
    s.accelerator = types.SimpleNamespace(gather=lambda t: t, gather_for_metrics=lambda t: t,
                                          device=torch.device("cpu"))
    s.model = types.SimpleNamespace(training=True)
    s._metrics = {"train": collections.defaultdict(list)}
    s._total_train_tokens, s._tp_size = 0, 1
    s._compute_kl_logps = functools.partial(KTOTrainer._compute_kl_logps, s)
    ids = torch.zeros(examples, tokens + 1, dtype=torch.long)  # a first column that is the prompt
    mask = torch.ones_like(ids)
    completion = mask.clone()
    completion[:, 0] = 0

    def model(input_ids=None, **kwargs):
        chosen = logp[examples:] if input_ids[0, 0] == 1 else logp[:examples]
        zeros = torch.zeros_like(chosen)  # of no interest here
        return types.SimpleNamespace(log_probs=chosen, entropy=zeros, mean_logits=zeros)

    summed = ref.sum(dim=1)
    inputs = {"input_ids": ids, "attention_mask": mask, "completion_mask": completion,
              "KL_input_ids": torch.ones_like(ids), "KL_attention_mask": mask,
              "KL_completion_mask": completion, "label": labels.bool(),
              "ref_logps": summed[:examples], "ref_KL_logps": summed[examples:]}
    loss = KTOTrainer._compute_loss(s, model, inputs, False)
    return loss, {k: v[0] for k, v in s._metrics["train"].items()}


def line(name, values):
    return name + " " + " ".join(repr(float(v)) for v in values) + "\n"


def main():
    torch.manual_seed(11)
    text = f"# trl {trl.__version__} torch {torch.__version__}: KTOTrainer._compute_loss, float64\n"
    cases = [("kto", 0.1, (1.0, 1.0), [1, 0, 1, 0], 5, 0.0), ("kto", 0.5, (1.33, 0.75), [1, 0, 0], 3, 0.6),
             ("kto", 0.3, (1.0, 2.0), [1, 1, 1], 4, -0.6), ("kto", 0.2, (0.5, 1.0), [0, 0], 2, 0.9),
             ("apo_zero_unpaired", 0.3, (1.0, 1.5), [0, 1, 1, 0], 3, 0.0)]
    for loss_type, beta, weights, labels, tokens, shift in cases:
        labels = torch.tensor(labels)
        examples = len(labels)
        logp = -3 * torch.rand(2 * examples, tokens, dtype=torch.float64) - 0.01
        logp[examples:] += shift  # the estimate of the divergence is above 0, or cut to 0
        logp.requires_grad_()
        ref = -3 * torch.rand(2 * examples, tokens, dtype=torch.float64) - 0.01
        loss, metrics = trl_loss(loss_type, beta, weights, labels, logp, ref)
        grad, = torch.autograd.grad(loss * examples, logp)
        text += f"case {loss_type} {beta} {weights[0]} {weights[1]} {examples} {tokens}\n"
        text += line("labels", labels)
        text += line("policy", logp.detach().flatten()) + line("reference", ref.flatten())
        text += line("loss", [loss.detach() * examples]) + line("grad", grad.flatten())
        text += line("metrics", [metrics.get(k, math.nan) for k in KEYS])
    OUT.write_text(text)


if __name__ == "__main__":
    main()
