"""Goldens of the optimizers on a mixed set of tensors, 300 steps each, by the implementations named below.

    python tests/golden/optimizers_mixed.py [NAME...]       writes data/optimizers/*.f32

torch 2.15.0 (SGD, AdamW), lion-pytorch 0.2.5, pytorch-optimizer 4.1.0 (SignSGD), schedulefree 1.4.1,
transformers 5.23.0 (Adafactor), adam-mini 1.1.1, bitsandbytes 0.50.0 (AdamW8bit), galore-torch 1.0,
apollo-torch 1.0.3; AnyPrecisionAdamW and Sophia-G from the formulas their authors published (below).
Parameters and gradients come from a counter; tests/support/optimizer_golden.h has the same set in C.
A file holds the parameters, then the states that the test compares, slot by slot.
"""

import pathlib
import sys
import warnings

import numpy as np
import torch

from optimizers import gradient, learning_rate, start

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
DATA = pathlib.Path(__file__).parent / "data" / "optimizers"
STEPS = 300
# shape, factor on the gradients
MIXED = [((17, 5), 1.0), ((33,), 1.0), ((1,), 1.0), ((20, 21), 1.0), ((6, 7), 0.0), ((9, 11), 1e4), ((9, 11), 1e-6)]
NAMES = ["a.weight", "b.norm.weight", "c.bias", "embed.weight", "d.weight", "e.weight", "f.weight"]
WRITERS = {}


def golden(f):
    WRITERS[f.__name__] = f
    return f


def parameters():
    return [torch.nn.Parameter(start(k, shape)) for k, (shape, _) in enumerate(MIXED)]


def groups(params, decay):
    """Vectors take no decay."""
    return [{"params": [p], "weight_decay": decay if p.ndim == 2 else 0.0} for p in params]


def follow(params, opt, base, steps=STEPS, after=None):
    for step in range(1, steps + 1):
        for group in opt.param_groups:
            group["lr"] = learning_rate(base, step)
        for k, p in enumerate(params):
            shape, factor = MIXED[k]
            p.grad = gradient(k, step, shape) * torch.tensor(factor, dtype=torch.float32)
        opt.step()
        if after:
            after(step)


def write(name, *lists):
    flat = np.concatenate([t.detach().float().numpy().reshape(-1) for ts in lists for t in ts])
    DATA.mkdir(parents=True, exist_ok=True)
    flat.astype("<f4").tofile(DATA / (name + ".f32"))


def states(opt, params, key):
    return [opt.state[p][key] for p in params]


@golden
def sgd():
    for name, momentum, settings, decay in (
            ("plain", 0.0, {}, 0.0), ("momentum", 0.9, {"dampening": 0.1}, 0.01),
            ("nesterov", 0.95, {"nesterov": True}, 0.01)):
        params = parameters()
        opt = torch.optim.SGD(groups(params, decay), lr=1e-3, momentum=momentum, foreach=False, **settings)
        # huge gradients would leave f32 exact comparisons meaningless after a walk of 1e4
        follow(params, opt, 1e-3)
        write("sgd_" + name, params, states(opt, params, "momentum_buffer") if momentum else [])


@golden
def adamw_mixed():
    params = parameters()
    opt = torch.optim.AdamW(groups(params, 0.1), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    follow(params, opt, 1e-3)
    write("adamw_mixed", params, states(opt, params, "exp_avg"), states(opt, params, "exp_avg_sq"))


@golden
def lion():
    from lion_pytorch import Lion

    params = parameters()
    opt = Lion(groups(params, 0.1), lr=1e-3, betas=(0.9, 0.99))
    follow(params, opt, 1e-3)
    write("lion", params, states(opt, params, "exp_avg"))
    params = parameters()
    opt = Lion(groups(params, 0.0), lr=1e-3, betas=(0.95, 0.98))
    follow(params, opt, 1e-3)
    write("lion_betas", params, states(opt, params, "exp_avg"))


@golden
def signsgd():
    from pytorch_optimizer import SignSGD

    for name, momentum in (("plain", 0.0), ("momentum", 0.9)):
        params = parameters()
        opt = SignSGD(groups(params, 0.1), lr=1e-3, momentum=momentum, weight_decouple=True)
        follow(params, opt, 1e-3)
        write("signsgd_" + name, params, states(opt, params, "momentum_buffer") if momentum else [])


class AnyPrecisionAdamW(torch.optim.Optimizer):
    """torchdistx.optimizers.AnyPrecisionAdamW, its published update in its order of operations."""

    def __init__(self, params, lr, betas, eps, kahan, dtypes):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=0.0))
        self.kahan, self.dtypes = kahan, dtypes

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s["step"] = 0
                    for key, dtype in zip(("m", "v", "c"), self.dtypes):
                        s[key] = torch.zeros_like(p, dtype=dtype)
                s["step"] += 1
                if group["weight_decay"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                step_size = group["lr"] / (1 - b1 ** s["step"])
                denominator = (s["v"].float().sqrt() / (1 - b2 ** s["step"]) ** 0.5).add_(group["eps"])
                if self.kahan:
                    s["c"].addcdiv_(s["m"].float(), denominator, value=-step_size)
                    before = p.detach().clone()
                    p.add_(s["c"])
                    s["c"].add_(before.sub_(p))
                else:
                    p.addcdiv_(s["m"].float(), denominator, value=-step_size)


@golden
def adamw_anyprecision():
    f, b = torch.float32, torch.bfloat16
    for name, kahan, dtypes in (("fp32", False, (f, f, f)), ("kahan", True, (f, f, f)), ("bf16", True, (b, b, b))):
        params = parameters()
        opt = AnyPrecisionAdamW(groups(params, 0.1), 1e-3, (0.9, 0.95), 1e-8, kahan, dtypes)
        follow(params, opt, 1e-3)
        write("adamw_anyprecision_" + name, params)


@golden
def schedule_free_adamw():
    from schedulefree import AdamWScheduleFree

    for name, settings, decay in (("default", {}, 0.0), ("warmup", {"warmup_steps": 20, "r": 1.0}, 0.1)):
        params = parameters()
        opt = AdamWScheduleFree(groups(params, decay), lr=1e-3, betas=(0.9, 0.95), foreach=False, **settings)
        opt.train()
        for step in range(1, STEPS + 1):
            for k, p in enumerate(params):
                shape, factor = MIXED[k]
                p.grad = gradient(k, step, shape) * torch.tensor(factor, dtype=torch.float32)
            opt.step()
        y = [p.detach().clone() for p in params]
        opt.eval()
        write("schedule_free_adamw_" + name, y, states(opt, params, "z"), states(opt, params, "exp_avg_sq"), params)


@golden
def sophia():
    """Sophia-G as its authors publish it: update_hessian every k steps, then a clipped step. Gradients of
    the sampled loss are those of step + 1000 here."""
    b1, b2, rho, count, every = 0.965, 0.99, 0.04, 32.0, 10
    params = parameters()
    m = [torch.zeros_like(p) for p in params]
    h = [torch.zeros_like(p) for p in params]
    for step in range(1, STEPS + 1):
        lr = learning_rate(1e-3, step)
        for k, p in enumerate(params):
            shape, factor = MIXED[k]
            factor = torch.tensor(factor, dtype=torch.float32)
            g = gradient(k, step, shape) * factor
            with torch.no_grad():
                p.mul_(1 - lr * (0.1 if p.ndim == 2 else 0.0))
                m[k].mul_(b1).add_(g, alpha=1 - b1)
                ratio = (m[k].abs() / (rho * h[k] + 1e-15)).clamp(None, 1)
                p.addcmul_(m[k].sign(), ratio, value=-lr)
                if (step - 1) % every == 0:
                    sampled = gradient(k, step + 1000, shape) * factor
                    h[k].mul_(b2).addcmul_(sampled, sampled, value=(1 - b2) * count)
    write("sophia", params, m, h)


@golden
def adafactor():
    from transformers.optimization import Adafactor

    cases = (("lr", dict(lr=1e-3, relative_step=False, scale_parameter=False)),
             ("scaled", dict(lr=1e-2, relative_step=False, scale_parameter=True, beta1=0.9, clip_threshold=0.5)),
             ("relative", dict(lr=None, relative_step=True, warmup_init=True, decay_rate=-0.6)))
    for name, settings in cases:
        params = parameters()
        opt = Adafactor([{"params": [p], "weight_decay": 0.1 if p.ndim == 2 else 0.0} for p in params], **settings)
        for step in range(1, STEPS + 1):
            for group in opt.param_groups:
                if settings["lr"]:
                    group["lr"] = learning_rate(settings["lr"], step)
            for k, p in enumerate(params):
                shape, factor = MIXED[k]
                p.grad = gradient(k, step, shape) * torch.tensor(factor, dtype=torch.float32)
            opt.step()
        write("adafactor_" + name, params)


@golden
def adam_mini():
    from adam_mini import Adam_mini

    names = ["a.mlp.weight", "b.norm.weight", "c.bias", "embed.weight", "d.mlp.weight", "q_proj.weight", "e.mlp.weight"]
    params = parameters()
    # 33 heads of 33*33 / 33 = 33 elements: three rows of the query projection
    opt = Adam_mini(list(zip(names, params)), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, dim=33,
                    n_heads=33, verbose=False)
    follow(params, opt, 1e-3)
    write("adam_mini", params)


@golden
def adamw_8bit():
    import bitsandbytes.functional as F
    from bitsandbytes.backends.triton.kernels_optim import optimizer_update_8bit_blockwise_pytorch as update

    torch.stack([F.create_dynamic_map(signed=True), F.create_dynamic_map(signed=False)]).numpy().astype(
        "<f4").tofile(DATA / "dynamic_maps.f32")
    maps = F.create_dynamic_map(signed=True), F.create_dynamic_map(signed=False)
    params = parameters()
    codes = [[torch.zeros(p.numel(), dtype=torch.uint8) for p in params] for _ in range(2)]
    scales = [[torch.zeros((p.numel() + 255) // 256) for p in params] for _ in range(2)]
    for step in range(1, STEPS + 1):
        lr = learning_rate(1e-3, step)
        for k, p in enumerate(params):
            shape, factor = MIXED[k]
            g = gradient(k, step, shape) * torch.tensor(factor, dtype=torch.float32)
            flat = p.data.view(-1)
            update(flat, g.view(-1), codes[0][k], codes[1][k], 0.9, 0.95, 0.0, 0.0, 1e-8, step, lr, maps[0], maps[1],
                   scales[0][k], scales[1][k], 0.1 if p.ndim == 2 else 0.0, 1.0, False, optimizer_name="adam")
    write("adamw_8bit", params, codes[0], codes[1])


def fixed_sign(vectors):
    """Rows with their largest element positive: what GaLore leaves to the SVD of its library."""
    most = vectors.abs().argmax(dim=1)
    return vectors * vectors[torch.arange(len(vectors)), most].sign()[:, None]


@golden
def galore():
    from galore_torch import GaLoreAdamW
    from galore_torch.galore_projector import GaLoreProjector

    def orthogonal(self, weights, rank, type):
        u, _, vh = torch.linalg.svd(weights.double(), full_matrices=False)
        rows = fixed_sign(vh[:rank] if type == "right" else u[:, :rank].T).float()
        return rows if type == "right" else rows.T.contiguous()

    GaLoreProjector.get_orthogonal_matrix = orthogonal
    params = parameters()
    groups_ = []
    for k, p in enumerate(params):
        group = {"params": [p], "weight_decay": 0.1 if p.ndim == 2 else 0.0}
        if k in (0, 4, 5, 6):
            group.update(rank=3, update_proj_gap=50, scale=0.25, proj_type="std")
        groups_.append(group)
    opt = GaLoreAdamW(groups_, lr=1e-3, betas=(0.9, 0.95), eps=1e-6, no_deprecation_warning=True)
    follow(params, opt, 1e-3)
    write("galore", params)


def philox(key, counter):
    """Philox4x32-10 (Salmon et al. 2011) over arrays of counters [n, 4]."""
    k0, k1 = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
    c = [counter[:, i].astype(np.uint64) for i in range(4)]
    with np.errstate(over="ignore"):
        for _ in range(10):
            a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
            n0 = (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0)
            n2 = (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1)
            c = [n0, b & np.uint64(0xFFFFFFFF), n2, a & np.uint64(0xFFFFFFFF)]
            k0, k1 = np.uint32(k0 + np.uint32(0x9E3779B9)), np.uint32(k1 + np.uint32(0xBB67AE85))
    return c


def counter_normals(n, seed, step, stream):
    """Lathe's counter RNG and Box-Muller, in double."""
    pairs = np.arange((n + 1) // 2, dtype=np.uint64)
    counter = np.stack([pairs, np.full_like(pairs, ((stream >> 32) << 16) & 0xFFFFFFFF),
                        np.full_like(pairs, stream & 0xFFFFFFFF), np.full_like(pairs, step)], axis=1)
    w = philox(seed, counter)
    u1 = (((w[0] << np.uint64(32)) | w[1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    u2 = (((w[2] << np.uint64(32)) | w[3]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(1 - u1)), 2 * np.pi * u2
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:n]


@golden
def apollo():
    from apollo_torch import APOLLOAdamW
    from apollo_torch.random_projector import GradientProjector

    def orthogonal(self, weights, rank, type, seed):
        length = weights.shape[1] if type == "right" else weights.shape[0]
        stream = 0x41504F4C4C4F ^ self.tensor
        rows = counter_normals(rank * length, 7, self.epoch, stream).reshape(rank, length) / np.sqrt(rank)
        self.epoch += 1
        rows = torch.from_numpy(rows.astype(np.float32))
        return rows if type == "right" else rows.T.contiguous()

    GradientProjector.get_orthogonal_matrix = orthogonal
    for name, rank, scale, scale_type, front, limiter in (
            ("channel", 3, 1.0, "channel", False, True), ("mini", 1, 128.0, "tensor", False, True),
            ("front", 2, 4.0, "channel", True, True), ("free", 3, 1.0, "tensor", False, False)):
        params = parameters()
        groups_ = []
        for k, p in enumerate(params):
            group = {"params": [p], "weight_decay": 0.1 if p.ndim == 2 else 0.0}
            if k in (0, 4, 5, 6):
                group.update(rank=rank, update_proj_gap=50, scale=scale, proj="random", proj_type="std",
                             scale_type=scale_type)
            groups_.append(group)
        opt = APOLLOAdamW(groups_, lr=1e-3, betas=(0.9, 0.95), eps=1e-6, scale_front=front, disable_nl=not limiter)
        keep = opt._initialize_projector

        def make(group, state, keep=keep):
            projector = keep(group, state)
            projector.tensor, projector.epoch = state["seed"] - 1, 0
            return projector

        opt._initialize_projector = make
        follow(params, opt, 1e-3)
        write("apollo_" + name, params)


if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        WRITERS[name]()
    print("torch", torch.__version__)
