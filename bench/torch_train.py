"""Whole optimizer steps of a Llama-shaped model in PyTorch, beside bench_train: the same shape, batch and clipping.

Usage: torch_train.py STEPS PARAMS hidden=.. ffn=.. layers=.. heads=.. kv_heads=.. vocab=.. tied=0|1 rows=.. tokens=.. accumulation=..
PARAMS: fp32 (parameters and states in fp32, bf16 autocast) or bf16 (all in bf16, no masters). torch.compile of each layer
and of the head with its loss, scaled_dot_product_attention with the faster of FlashAttention and cuDNN for the shape,
fused AdamW, the gradient clipped to norm 1. Takes half the rows, twice accumulated, while memory is short. Prints one
"key value" per line.
"""
import os
import sys
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

device = "cuda" if torch.cuda.is_available() else "cpu"


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.size = s.heads, s.kv_heads, s.hidden // s.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(s.hidden, eps=1e-5), nn.RMSNorm(s.hidden, eps=1e-5)
        self.q, self.o = (nn.Linear(s.hidden, s.hidden, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(s.hidden, self.kv_heads * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(s.hidden, s.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm_1(x)
        q, k, v = (p(h).view(b, t, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        h = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.o(h.transpose(1, 2).reshape(b, t, -1))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Head(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm, self.out = nn.RMSNorm(s.hidden, eps=1e-5), nn.Linear(s.hidden, s.vocab, bias=False)

    def forward(self, x, targets):
        return F.cross_entropy(self.out(self.norm(x)).flatten(0, 1).float(), targets.flatten())


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s.vocab, s.hidden)
        self.layers, self.head = nn.ModuleList(Layer(s) for _ in range(s.layers)), Head(s)
        if s.tied:
            self.head.out.weight = self.embed.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        size = s.hidden // s.heads
        angle = torch.outer(torch.arange(s.tokens).float(), 500000.0 ** (-torch.arange(0, size, 2).float() / size))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def compile_parts(self):
        for part in (*self.layers, self.head):
            part.compile(dynamic=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(x, targets)


def attention_backend(s):
    """The faster one for the shape, forward and backward."""
    if device == "cpu":
        return SDPBackend.MATH
    size, best = s.hidden // s.heads, (float("inf"), None)
    q = torch.randn(s.rows, s.heads, s.tokens, size, device=device, dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(s.rows, s.kv_heads, s.tokens, size, device=device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(2))
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend):
                for i in range(8):
                    if i == 3:
                        torch.cuda.synchronize()
                        begun = time.perf_counter()
                    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                    torch.autograd.grad(o, (q, k, v), o)
                torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - begun, backend), key=lambda x: x[0])
        except RuntimeError as error:
            print(f"{backend}: {error}", file=sys.stderr)
    return best[1] or SDPBackend.EFFICIENT_ATTENTION


def measure(s, steps, params):
    torch.manual_seed(1)
    with torch.device(device):
        model = Model(s)
    if params == "bf16":
        model = model.to(torch.bfloat16)
    model.compile_parts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    text = torch.randint(0, s.vocab, (s.rows * s.tokens + 1,), device=device)
    tokens, targets = (text[i:i + s.rows * s.tokens].view(s.rows, s.tokens) for i in (0, 1))

    def step():
        begun = time.perf_counter()
        for _ in range(s.accumulation):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=params == "fp32"):
                loss = model(tokens, targets) / s.accumulation
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun, loss.item() * s.accumulation

    for _ in range(3):
        step()
    times = [step() for _ in range(steps)]
    seconds = sorted(t[0] for t in times)[steps // 2]
    n = s.rows * s.tokens * s.accumulation
    print(f"parameters {sum(p.numel() for p in model.parameters())}")
    print(f"step_ms {1e3 * seconds:.3f}\ntokens_per_s {n / seconds:.1f}\nloss {times[-1][1]:.4f}")
    print(f"rows {s.rows}\naccumulation {s.accumulation}")


def main():
    steps, params = int(sys.argv[1]), sys.argv[2]
    s = type("Shape", (), {k: int(v) for k, v in (a.split("=") for a in sys.argv[3:])})
    backend = attention_backend(s)
    print(f"torch {torch.__version__}\nattention {getattr(backend, 'name', backend)}")
    while True:
        short = False
        try:
            with sdpa_kernel(backend):
                measure(s, steps, params)
        except torch.OutOfMemoryError:
            short = True
        if not short:
            break
        if s.rows == 1:
            sys.exit("torch_train.py: one row does not fit the memory")
        s.rows, s.accumulation = s.rows // 2, s.accumulation * 2
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if device == "cuda":
        print(f"peak_gib {torch.cuda.max_memory_allocated() / 2**30:.2f}")


main()
