"""The gated delta rule and its gradients by transformers' reference path: data/gated_delta.f32.

Little-endian f32, one after the other: q, k [140,8], v [140,12], g, beta [140,2], do [140,12] (inputs, two rows of 70 tokens: a
chunk of 64 and a part of one); o by torch_chunk_gated_delta_rule, dq, dk, dv, dg, dbeta by autograd through it; and o [70,12] of the
first row by torch_recurrent_gated_delta_rule, in parts of 5 and of 65 tokens with the state between them. One head of keys of 8,
two of values of 6. Made with torch 2.15.0, transformers 5.24.0.
"""
import pathlib

import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule

torch.manual_seed(11)
torch.set_num_threads(1)
B, T, HK, H, DK, DV = 2, 70, 1, 2, 8, 6
q = torch.nn.functional.normalize(torch.randn(B, T, HK, DK), dim=-1).requires_grad_()
k = torch.nn.functional.normalize(torch.randn(B, T, HK, DK), dim=-1).requires_grad_()
v = torch.randn(B, T, H, DV, requires_grad=True)
g = (-0.3 * torch.rand(B, T, H)).requires_grad_()
beta = torch.rand(B, T, H, requires_grad=True)
do = torch.randn(B, T, H, DV)
o, _ = torch_chunk_gated_delta_rule(q, k, v, g, beta)
o.backward(do)
parts, state = [], None
with torch.no_grad():
    for part in (slice(0, 5), slice(5, T)):
        x = [t[:1, part] for t in (q, k, v, g, beta)]
        y, state = torch_recurrent_gated_delta_rule(*x, initial_state=state, output_final_state=True)
        parts.append(y)
recurrent = torch.cat(parts, 1)
print("largest difference of the two paths", (recurrent - o[:1]).abs().max().item())
out = [q, k, v, g, beta, do, o, q.grad, k.grad, v.grad, g.grad, beta.grad, recurrent]
data = b"".join(t.detach().contiguous().numpy().astype("<f4").tobytes() for t in out)
path = pathlib.Path(__file__).parent / "data/gated_delta.f32"
path.write_bytes(data)
path.chmod(0o644)
