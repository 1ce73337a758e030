"""data/io/mixed.safetensors: every dtype that Lathe reads, as the Python safetensors package writes it.

Element i of each float tensor is (i - 3) / 4, of each integer tensor i - 3 (modulo its width), of the bool
tensor i odd.  Made with torch 2.15.0, safetensors 0.8.0:  python tests/golden/io.py
"""
import pathlib

import torch
from safetensors.torch import save_file

n = torch.arange(12, dtype=torch.float64).reshape(3, 4)
tensors = {
    "a.f64": (n - 3) / 4, "b.f32": ((n - 3) / 4).float(), "c.bf16": ((n - 3) / 4).bfloat16(),
    "d.f16": ((n - 3) / 4).half(), "e.i64": (n - 3).long(), "f.i32": (n - 3).int(), "g.i16": (n - 3).short(),
    "h.i8": (n - 3).to(torch.int8), "i.u8": (n - 3).long().to(torch.uint8), "j.bool": n.long() % 2 == 1,
    "k.e4m3": ((n - 3) / 4).to(torch.float8_e4m3fn), "l.e5m2": ((n - 3) / 4).to(torch.float8_e5m2),
    "m.scalar": torch.tensor(2.5), "n.empty": torch.zeros(0, 4), "é \"quoted\"": torch.tensor([1.0]),
}
path = pathlib.Path(__file__).parent / "data" / "io" / "mixed.safetensors"
path.parent.mkdir(parents=True, exist_ok=True)
save_file(tensors, path, metadata={"format": "pt", "origin": "safetensors 0.8.0"})
path.chmod(0o644)
