"""Token accuracy, calibration error and loss of the golden models, from transformers' logits by numpy.

Reads golden.safetensors of data/models/<name>/ (models.py) and writes data/evaluation.txt, one line per model:

  name loss accuracy ece n targets...    targets i32 [B*T], -1 where there is none

Every third target is the likeliest token, every fifth none, the rest the next token of the row; so that hits
are neither none nor all. ECE over 15 equal bins (b/15, (b+1)/15] of the likeliest token's probability (Guo et
al., 2017), bins by numpy.digitize on the right edges, another way than Lathe's.

Made with numpy 2.4.6, safetensors 0.8.0:  python tests/golden/evaluation.py
"""
import pathlib

import numpy as np
from safetensors.numpy import load_file

DATA = pathlib.Path(__file__).parent / "data"
BINS = 15


def evaluate(name):
    golden = load_file(DATA / "models" / name / "golden.safetensors")
    ids, logits = golden["input_ids"], golden["logits"].astype(np.float64)
    targets = np.full(ids.shape, -1, np.int32)
    targets[:, :-1] = ids[:, 1:]
    targets, logits = targets.reshape(-1), logits.reshape(-1, logits.shape[-1])
    top = logits.argmax(-1)
    at = np.arange(targets.size)
    targets = np.where(at % 3 == 0, top, targets)
    targets = np.where(at % 5 == 4, -1, targets)
    known = targets >= 0
    logp = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) \
        - logits.max(-1, keepdims=True)
    loss = -logp[at[known], targets[known]].mean()
    confidence, hit = np.exp(logp.max(-1))[known], (top == targets)[known]
    edges = np.linspace(0.0, 1.0, BINS + 1)[1:-1]
    bins = np.digitize(confidence, edges, right=True)
    ece = sum(abs(hit[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean()
              for b in range(BINS) if (bins == b).any())
    return loss, hit.mean(), ece, targets


lines = []
for name in ["gpt2", "llama_tied", "llama_untied", "qwen2", "qwen3"]:
    loss, accuracy, ece, targets = evaluate(name)
    lines.append(f"{name} {loss:.12g} {accuracy:.12g} {ece:.12g} {targets.size} " + " ".join(map(str, targets)))
(DATA / "evaluation.txt").write_text("\n".join(lines) + "\n")
