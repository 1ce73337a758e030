#!/usr/bin/env python3
"""Golden values of the losses of stage dpo that read no reference model: TRL's own CPOTrainer.cpo_loss and
ORPOTrainer.odds_ratio_loss on fixed log-probabilities, in double precision (odds_ratio_loss calls float(), which
becomes double() here).

The trainers add the negative log-likelihood of the chosen completions, which they average over the tokens of the
batch; here, as in the stage, over those of each pair, so that a pair is a batch of its own.

Writes data/dpo_free.txt, read by plugins/stages/dpo/test_dpo_free.c:
    case <loss_type> <beta> <label_smoothing> <simpo_gamma> <cpo_alpha> <pairs> <tokens>
    targets, policy: [2P*T]; loss: sum over pairs; grad: d loss / d policy; metrics: sums, in the stage's order
"""
import os
import pathlib
import types

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import trl
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

OUT = pathlib.Path(__file__).parent / "data" / "dpo_free.txt"
torch.Tensor.float = torch.Tensor.double


def stub(loss_type, beta, e, gamma):
    return types.SimpleNamespace(loss_type="sigmoid" if loss_type == "cpo" else loss_type, beta=beta,
                                 label_smoothing=e, simpo_gamma=gamma, alpha=0.0,
                                 accelerator=types.SimpleNamespace(device=torch.device("cpu")))


def case(loss_type, beta, e, gamma, alpha, pairs, logp, mask):
    total, sums = 0.0, {}

    def add(name, value):
        sums[name] = sums.get(name, 0.0) + float(value.detach())

    for i in range(pairs):
        rows = [i, pairs + i]
        value = [(logp[r] * mask[r]).sum() for r in rows]
        nll = -value[0] / mask[rows[0]].sum()
        if loss_type != "cpo":
            value = [v / mask[r].sum() for v, r in zip(value, rows)]
        s = stub(loss_type, beta, e, gamma)
        chosen, rejected = value[0].reshape(1), value[1].reshape(1)
        if loss_type == "orpo":
            losses, up, down, ratio, odds = ORPOTrainer.odds_ratio_loss(s, chosen, rejected)
            total = total + nll - losses.mean()
        else:
            losses, up, down = CPOTrainer.cpo_loss(s, chosen, rejected)
            total = total + losses.mean() + alpha * nll
        add("rewards/chosen", up)
        add("rewards/rejected", down)
        add("rewards/margins", up - down)
        add("rewards/accuracies", up > down)
        add("logps/chosen", chosen)
        add("logps/rejected", rejected)
        if loss_type != "simpo":
            add("nll_loss", nll)
        if loss_type == "orpo":
            add("log_odds_chosen", odds)
            add("log_odds_ratio", ratio)
    return total, list(sums.values())


def line(name, values):
    return name + " " + " ".join(repr(float(v)) for v in values) + "\n"


def main():
    torch.manual_seed(11)
    torch.set_default_dtype(torch.float64)
    text = f"# trl {trl.__version__} torch {torch.__version__}: cpo_loss, odds_ratio_loss, float64\n"
    cases = [("cpo", 0.1, 0.0, 0.5, 1.0, 3, 5), ("cpo", 0.3, 0.1, 0.5, 0.25, 2, 4), ("cpo", 0.2, 0.0, 0.5, 0.0, 1, 3),
             ("simpo", 2.0, 0.0, 0.5, 0.0, 4, 5), ("simpo", 2.5, 0.2, 1.2, 0.0, 3, 3),
             ("orpo", 0.1, 0.0, 0.5, 1.0, 4, 5), ("orpo", 0.7, 0.0, 0.5, 1.0, 1, 1)]
    for loss_type, beta, e, gamma, alpha, pairs, tokens in cases:
        mask = torch.ones(2 * pairs, tokens)
        for row in range(2 * pairs):
            mask[row, 1 + row % tokens:] = 0
        logp = ((-3 * torch.rand(2 * pairs, tokens) - 0.01) * mask).requires_grad_()
        loss, metrics = case(loss_type, beta, e, gamma, alpha, pairs, logp, mask)
        grad, = torch.autograd.grad(loss, logp)
        text += f"case {loss_type} {beta} {e} {gamma} {alpha} {pairs} {tokens}\n"
        text += line("targets", mask.flatten()) + line("policy", logp.detach().flatten())
        text += line("loss", [loss]) + line("grad", grad.flatten()) + line("metrics", metrics)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
