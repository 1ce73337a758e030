"""Whole optimizer steps of the GPT-2 124M shape in PyTorch, for the table that bench/run prints.

Usage: torch_step.py MODE [rows] [row_tokens] [steps], MODE: eager, compile
A nanoGPT-style module: scaled_dot_product_attention, tied head, bf16 autocast, fused AdamW, the gradient
clipped to norm 1. Prints one "key value" per line.
"""
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

V, C, LAYERS, HEADS, POSITIONS = 50257, 768, 12, 12, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.fc_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3 * HEADS, C // HEADS).transpose(1, 2).split(HEADS, 1)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(o.transpose(1, 2).reshape(b, t, C))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(POSITIONS, C)
        self.blocks, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(C)
        self.head = nn.Linear(C, V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, V), targets.view(-1))


def main():
    mode = sys.argv[1]
    rows, row_tokens, steps = (int(a) for a in (sys.argv[2:] + ["4", "1024", "5"][len(sys.argv) - 2:]))
    torch.set_num_threads(2)
    torch.manual_seed(1)
    model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    run = torch.compile(model) if mode == "compile" else model
    text = torch.randint(0, V, (rows * row_tokens + 1,))
    tokens, targets = (text[i:i + rows * row_tokens].view(rows, row_tokens) for i in (0, 1))

    def step():
        begun, cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begun, time.process_time() - cpu, loss.item()

    step()
    step()
    times = [step() for _ in range(steps)]
    seconds = sorted(t[0] for t in times)[steps // 2]
    print(f"torch {torch.__version__}")
    print(f"step_ms {1e3 * seconds:.1f}")
    print(f"cpu_ms {1e3 * sorted(t[1] for t in times)[steps // 2]:.1f}")
    print(f"tokens_per_s {rows * row_tokens / seconds:.1f}")
    print(f"loss {times[-1][2]:.4f}")
    print(f"peak_mib {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}")


main()
