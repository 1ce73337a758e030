"""A short causal convolution and its gradients, by torch.nn.functional.conv1d and autograd, as transformers'
Qwen3NextGatedDeltaNet computes it without the causal-conv1d package: data/short_conv.f32.

Little-endian f32, one after the other: x [14,5], w [5,4], b [5], dy [14,5], y, dx, dw, db; two rows of 7 tokens.
"""
import pathlib

import torch

torch.manual_seed(7)
B, T, C, K = 2, 7, 5, 4
x = torch.randn(B, T, C, requires_grad=True)
w = torch.randn(C, K, requires_grad=True)
b = torch.randn(C, requires_grad=True)
dy = torch.randn(B, T, C)
padded = torch.nn.functional.conv1d(x.transpose(1, 2), w[:, None, :], b, padding=K - 1, groups=C)
y = torch.nn.functional.silu(padded[:, :, :T]).transpose(1, 2)
y.backward(dy)
out = [x, w, b, dy, y, x.grad, w.grad, b.grad]
data = b"".join(t.detach().contiguous().numpy().astype("<f4").tobytes() for t in out)
(pathlib.Path(__file__).parent / "data/short_conv.f32").write_bytes(data)
