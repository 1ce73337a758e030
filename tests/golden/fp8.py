#!/usr/bin/env python3
"""Casts to fp8 by torch and Float8Linear by torchao: tests/golden/data/fp8.safetensors.

    python3 tests/golden/fp8.py         # needs torch, torchao, safetensors

  <format>.bf16             u8[65536]  code of every bf16, saturated as torchao does
  <format>.edges            f32[n]     every midpoint between codes that follow each other, and the floats beside it
  <format>.edge_codes       u8[n]
  <case>.x w dy             bf16 [N,I] [O,I] [N,O]
  <case>.<recipe>.y dx dw   f32, torchao's emulated products, not rounded any further

The recipes are torchao's with dynamic scaling and the scales of its defaults; dy is E5M2 in both, where
torchao's ROWWISE would take E4M3.
"""
import pathlib

import numpy as np
import torch
import torchao
from safetensors.torch import save_file
from torchao.float8.config import CastConfig, Float8LinearConfig, ScalingGranularity
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.float8_utils import to_fp8_saturated

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SHAPES = {"small": (16, 32, 48), "wide": (48, 144, 80), "long": (144, 32, 16)}


def casts(out):
    every = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
    for name, dtype in FORMATS.items():
        out[f"{name}.bf16"] = to_fp8_saturated(every, dtype).view(torch.uint8)
        largest = torch.finfo(dtype).max
        codes = torch.arange(128, dtype=torch.uint8).view(dtype).float()
        codes = codes[torch.isfinite(codes)].numpy().astype(np.float64)
        middle = ((codes[1:] + codes[:-1]) / 2).astype(np.float32)
        points = [codes.astype(np.float32), middle]
        points += [np.nextafter(middle, np.float32(s)) for s in (np.inf, 0)]
        points += [np.float32([largest * 1.03, largest * 1.0625, largest * 2, 3.4e38, np.inf, 1e-45, 0])]
        points = np.concatenate(points)
        points = torch.from_numpy(np.concatenate([points, -points]))
        out[f"{name}.edges"] = points
        out[f"{name}.edge_codes"] = to_fp8_saturated(points, dtype).view(torch.uint8)


def config(recipe):
    granularity = ScalingGranularity.AXISWISE if recipe == "rowwise" else ScalingGranularity.TENSORWISE
    forward = CastConfig(scaling_granularity=granularity, target_dtype=FORMATS["e4m3"])
    backward = CastConfig(scaling_granularity=granularity, target_dtype=FORMATS["e5m2"])
    return Float8LinearConfig(
        cast_config_input=forward,
        cast_config_weight=forward,
        cast_config_grad_output=backward,
        emulate=True,
        round_scales_to_power_of_2=recipe == "rowwise",
    )


def noise(generator, *shape):
    """bf16 as training has it: rows and columns of unlike size, and outliers."""
    x = torch.randn(*shape, generator=generator)
    x *= torch.exp(1.5 * torch.randn(shape[0], 1, generator=generator))
    x *= torch.exp(0.7 * torch.randn(1, shape[1], generator=generator))
    x *= 1 + 30 * (torch.rand(*shape, generator=generator) < 0.002)
    return x.bfloat16()


def linears(out):
    generator = torch.Generator().manual_seed(11)
    for case, (n, i, o) in SHAPES.items():
        x, w = noise(generator, n, i), noise(generator, o, i) / 8
        dy = noise(generator, n, o) * 1e-3
        if case == "wide":
            x[3] = 0
            dy[:, 5] = 0
            w[7] *= 1e-14
        out.update({f"{case}.x": x, f"{case}.w": w, f"{case}.dy": dy})
        for recipe in ("tensorwise", "rowwise"):
            linear = torch.nn.Linear(i, o, bias=False)
            linear.weight.data = w.float()  # f32 operands: the same codes and scales, and products not rounded
            linear = Float8Linear.from_float(linear, config(recipe))
            xf = x.float().requires_grad_()
            y = linear(xf)
            y.backward(dy.float())
            results = {"y": y.detach(), "dx": xf.grad, "dw": linear.weight.grad}
            out.update({f"{case}.{recipe}.{k}": v for k, v in results.items()})


def main():
    out = {}
    casts(out)
    linears(out)
    path = pathlib.Path(__file__).parent / "data" / "fp8.safetensors"
    versions = {"torch": torch.__version__, "torchao": torchao.__version__}
    save_file({k: v.clone().contiguous() for k, v in out.items()}, path, metadata=versions)


if __name__ == "__main__":
    main()
