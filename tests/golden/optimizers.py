"""Goldens of the optimizers and schedulers, made by PyTorch and transformers.

    python tests/golden/optimizers.py         writes adamw, muon_*, to data/, cosine_* and plateau_* to data/schedulers/

The data were made with torch 2.15.0 (CPU), transformers 5.23.0 and numpy.
Parameters and gradients come from a counter (tests/support/optimizer_case.h has the same in C), so
that only the results need to be stored.
"""

import pathlib
import warnings

import numpy as np
import torch
import transformers

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data"
STEPS = 300


def uniform(stream, step, n):
    """splitmix64 of (stream, step, index), top 24 bits, in [-1, 1)."""
    with np.errstate(over="ignore"):
        x = np.arange(n, dtype=np.uint64) + np.uint64((stream << 48) | (step << 32))
        x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def start(tensor, shape):
    return torch.from_numpy(uniform(tensor, 0, int(np.prod(shape))).reshape(shape).copy())


def gradient(tensor, step, shape):
    """Noise around a fixed direction; every seventh element has no gradient for the first 10 steps."""
    n = int(np.prod(shape))
    g = uniform(tensor, step, n) + uniform(tensor + 100, 0, n)
    if step <= 10:
        g[::7] = 0
    return torch.from_numpy(g.reshape(shape).copy())


def learning_rate(base, step):
    return base * (1.0 - step / 400.0)


def optimize(make, shapes, base, grad_dtype=torch.float32):
    params = [torch.nn.Parameter(start(k, s)) for k, s in enumerate(shapes)]
    opt = make(params)
    for step in range(1, STEPS + 1):
        for group in opt.param_groups:
            group["lr"] = learning_rate(base, step)
        for k, p in enumerate(params):
            p.grad = gradient(k, step, shapes[k]).to(grad_dtype)
        opt.step()
    return params, opt


def write(name, tensors):
    flat = np.concatenate([t.detach().float().numpy().reshape(-1) for t in tensors])
    flat.astype("<f4").tofile(DATA / name)


def adamw():
    shapes = [(17, 5), (33,), (1,), (40, 41)]

    def make(params):
        decayed = [params[0], params[3]]
        plain = [params[1], params[2]]
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=False)

    params, opt = optimize(make, shapes, 1e-3)
    write("adamw.f32", params + [opt.state[p]["exp_avg"] for p in params]
          + [opt.state[p]["exp_avg_sq"] for p in params])


def newton_schulz(g, steps=5, eps=1e-7):
    """The published iteration in double: what rounding-free Muon would do."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.double()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


def muon():
    """torch.optim.Muon with its Newton-Schulz kept in double, and as it is (bf16), 20 steps."""
    shapes = [(12, 20), (24, 8), (16, 16)]
    for adjust in ("original", "match_rms_adamw"):
        for exact in (True, False):
            import torch.optim._muon as module

            keep = module._zeropower_via_newtonschulz
            if exact:
                module._zeropower_via_newtonschulz = lambda g, *_: newton_schulz(g).to(g.dtype)
            global STEPS
            STEPS, steps = 20, STEPS
            params, opt = optimize(
                lambda ps: torch.optim.Muon(ps, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True,
                                            adjust_lr_fn=adjust), shapes, 0.02)
            STEPS = steps
            module._zeropower_via_newtonschulz = keep
            kind = "exact" if exact else "bf16"
            write(f"muon_{adjust}_{kind}.f32", params + [opt.state[p]["momentum_buffer"] for p in params])


def schedule(name, make, steps, metrics=None):
    p = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=3e-4)
    s = make(opt)
    out = []
    for k in range(steps):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step() if metrics is None else s.step(metrics[k])
    np.array(out, dtype="<f8").tofile(DATA / name)


def plateau_metrics(n):
    """Falls, stalls and rises by turns; the same in test_reduce_on_plateau.c."""
    noise = uniform(900, 0, n).astype(np.float64)
    return [2.0 / (1.0 + 0.01 * (k % 400)) + 0.05 * noise[k] for k in range(n)]


def schedulers():
    from transformers import optimization as o

    schedule("schedulers/cosine_0_0.f64", lambda opt: o.get_cosine_schedule_with_warmup(opt, 0, 1000), 1000)
    schedule("schedulers/cosine_100_0.f64", lambda opt: o.get_cosine_schedule_with_warmup(opt, 100, 1000), 1000)
    schedule("schedulers/cosine_37_0.1.f64", lambda opt: o.get_cosine_with_min_lr_schedule_with_warmup(
        opt, 37, 1000, min_lr_rate=0.1), 1000)
    metrics = plateau_metrics(1000)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    schedule("schedulers/plateau_default.f64", lambda opt: plateau(opt), 1000, metrics)
    schedule("schedulers/plateau_abs.f64", lambda opt: plateau(
        opt, factor=0.5, patience=3, threshold=0.02, threshold_mode="abs", cooldown=5, min_lr=1e-6), 1000, metrics)
    schedule("schedulers/plateau_max.f64", lambda opt: plateau(
        opt, mode="max", factor=0.7, patience=0, threshold=0.01, cooldown=2, eps=1e-5), 1000, metrics)


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    adamw()
    muon()
    schedulers()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
