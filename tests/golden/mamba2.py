"""The state space of Mamba-2 and its gradients by transformers' reference path: data/mamba2.f32.

Little-endian f32, one after the other: C, B [140,14], x [140,12], decay = dt A, dt and D [140,4], dy [140,12] (inputs, two rows of 70
tokens: a chunk of 64 and a part of one); y by mamba2_chunk_scan, the gradients of C, B, x, dt and D by autograd through it (that of D
summed over tokens, [4]; that of dt with A's share); and y [70,12] of the first row by mamba2_selective_state_update, token by token.
Two groups of states of 7, four heads of 3. Made with torch 2.15.0, transformers 5.24.0.
"""
import pathlib

import torch
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import mamba2_chunk_scan, mamba2_selective_state_update

torch.manual_seed(12)
torch.set_num_threads(1)
N, T, G, H, S, P = 2, 70, 2, 4, 7, 3
c = torch.randn(N, T, G, S, requires_grad=True)
b = torch.randn(N, T, G, S, requires_grad=True)
x = torch.randn(N, T, H, P, requires_grad=True)
dt = (0.5 * torch.rand(N, T, H)).requires_grad_()
a = -2.0 * torch.rand(H)
d = torch.randn(H, requires_grad=True)
dy = torch.randn(N, T, H, P)
y = mamba2_chunk_scan(x, dt, a, b, c, chunk_size=16, D=d)
y.backward(dy)
parts = []
with torch.no_grad():
    state = torch.zeros(1, H, P, S)
    for t in range(T):
        wide = [v[:1, t] for v in (x, dt, b, c)]
        parts.append(mamba2_selective_state_update(state, wide[0], wide[1][..., None].expand(-1, -1, P), a[:, None, None].expand(-1, P, S),
                                                   wide[2], wide[3], d[:, None].expand(-1, P)))
recurrent = torch.stack(parts, 1)
print("largest difference of the two paths", (recurrent - y[:1]).abs().max().item())
out = [c, b, x, dt * a, dt, d.expand(N, T, H), dy, y, c.grad, b.grad, x.grad, dt.grad, d.grad, a, recurrent]
data = b"".join(t.detach().contiguous().numpy().astype("<f4").tobytes() for t in out)
path = pathlib.Path(__file__).parent / "data/mamba2.f32"
path.write_bytes(data)
path.chmod(0o644)
