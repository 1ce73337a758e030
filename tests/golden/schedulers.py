"""Goldens of the schedulers: every step of a 1000-step run by transformers and torch.

    python tests/golden/schedulers.py         writes data/schedulers/*.f64, 1000 doubles each

Made with torch 2.15.0 and transformers 5.23.0. Base rate 3e-4. The settings that Lathe's tests use for
each file stand in plugins/schedulers/*/test_*.c.
"""

import pathlib
import warnings

import numpy as np
import torch
import transformers
from transformers import optimization as o

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data" / "schedulers"
STEPS = 1000


def write(name, make, lr=3e-4):
    p = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=lr)
    s = make(opt)
    out = []
    for k in range(STEPS):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        if k + 1 < STEPS:
            s.step()
    np.array(out, dtype="<f8").tofile(DATA / (name + ".f64"))


def wsd(name, **settings):
    write("wsd_" + name, lambda opt: o.get_wsd_schedule(opt, num_training_steps=STEPS, **settings))


def one_cycle(name, **settings):
    write("one_cycle_" + name, lambda opt: torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=3e-4, total_steps=STEPS, cycle_momentum=False, **settings))


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    write("constant", o.get_constant_schedule)
    write("constant_with_warmup_100", lambda opt: o.get_constant_schedule_with_warmup(opt, 100))
    write("linear_0", lambda opt: o.get_linear_schedule_with_warmup(opt, 0, STEPS))
    write("linear_100", lambda opt: o.get_linear_schedule_with_warmup(opt, 100, STEPS))
    write("linear_short", lambda opt: o.get_linear_schedule_with_warmup(opt, 37, 700))
    write("cosine_2_waves", lambda opt: o.get_cosine_schedule_with_warmup(opt, 50, STEPS, num_cycles=2.0))
    write("cosine_with_min_lr_ratio", lambda opt: o.get_cosine_with_min_lr_schedule_with_warmup(
        opt, 37, STEPS, min_lr_rate=0.1))
    write("cosine_with_min_lr", lambda opt: o.get_cosine_with_min_lr_schedule_with_warmup(
        opt, 100, STEPS, min_lr=2e-5))
    write("restarts_1", lambda opt: o.get_cosine_with_hard_restarts_schedule_with_warmup(opt, 0, STEPS))
    write("restarts_3", lambda opt: o.get_cosine_with_hard_restarts_schedule_with_warmup(
        opt, 100, STEPS, num_cycles=3))
    write("polynomial_default", lambda opt: o.get_polynomial_decay_schedule_with_warmup(opt, 0, STEPS))
    write("polynomial_2", lambda opt: o.get_polynomial_decay_schedule_with_warmup(
        opt, 100, STEPS, lr_end=1e-5, power=2.0))
    write("polynomial_short", lambda opt: o.get_polynomial_decay_schedule_with_warmup(
        opt, 10, 600, lr_end=2e-6, power=0.5))
    write("inverse_sqrt_0", lambda opt: o.get_inverse_sqrt_schedule(opt, 0))
    write("inverse_sqrt_100", lambda opt: o.get_inverse_sqrt_schedule(opt, 100))
    write("inverse_sqrt_scale", lambda opt: o.get_inverse_sqrt_schedule(opt, 100, timescale=333))
    wsd("cosine", num_warmup_steps=100, num_decay_steps=200)
    wsd("linear", num_warmup_steps=50, num_decay_steps=100, decay_type="linear", min_lr_ratio=0.1)
    wsd("sqrt", num_warmup_steps=100, num_decay_steps=300, warmup_type="1-sqrt", decay_type="1-sqrt")
    wsd("warm_cosine", num_warmup_steps=200, num_decay_steps=150, warmup_type="cosine", min_lr_ratio=0.05)
    one_cycle("default")
    one_cycle("linear", pct_start=0.25, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0)
    one_cycle("three", pct_start=0.35, three_phase=True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
