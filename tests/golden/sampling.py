"""Goldens of sampling: the probabilities that transformers' logits processors leave, in the order of its generate.

    python tests/golden/sampling.py      writes data/sampling.json

Logits, the tokens so far, and for each case the settings and the probabilities. Made with transformers 5.23.0.
"""
import json
import pathlib

import torch
from transformers import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                          TopKLogitsWarper, TopPLogitsWarper)

DATA = pathlib.Path(__file__).parent / "data"
V = 40
CASES = [dict(temperature=1.0), dict(temperature=0.6), dict(temperature=1.7, top_k=5), dict(top_p=0.6), dict(top_p=0.05),
         dict(min_p=0.1), dict(repetition_penalty=1.3), dict(repetition_penalty=0.7), dict(top_k=12, top_p=0.8, min_p=0.03),
         dict(temperature=0.8, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.2), dict(min_p=1.0), dict(top_k=100)]


def main():
    torch.manual_seed(5)
    logits = torch.randn(V) * 2.5
    logits[7] = logits[9]  # equal ones
    ids = [3, 7, 3, int(logits.argmax()), 11]
    cases = []
    for case in CASES:
        how = dict({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}, **case)
        steps = LogitsProcessorList()
        if how["repetition_penalty"] != 1.0:
            steps.append(RepetitionPenaltyLogitsProcessor(how["repetition_penalty"]))
        if how["temperature"] != 1.0:
            steps.append(TemperatureLogitsWarper(how["temperature"]))
        if how["top_k"]:
            steps.append(TopKLogitsWarper(how["top_k"]))
        if how["top_p"] < 1.0:
            steps.append(TopPLogitsWarper(how["top_p"]))
        if how["min_p"]:
            steps.append(MinPLogitsWarper(how["min_p"]))
        p = torch.softmax(steps(torch.tensor([ids]), logits[None].clone())[0].double(), -1)
        cases.append(dict(how, p=[round(x, 9) for x in p.tolist()]))
    with open(DATA / "sampling.json", "w") as f:
        f.write("{\"logits\": %s,\n\"ids\": %s,\n\"cases\": [\n" % (json.dumps(logits.tolist()), ids))
        f.write(",\n".join(json.dumps(c) for c in cases) + "]}\n")


if __name__ == "__main__":
    main()
