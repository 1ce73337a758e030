#!/usr/bin/env python3
"""The keys that the run files of other trainers may have, as data/foreign_keys.txt: a letter and a key a line.

  L  LLaMA-Factory   the dataclasses of src/llamafactory/hparams, and transformers' TrainingArguments
  T  TRL             the fields of SFTConfig, DPOConfig, KTOConfig, RewardConfig, GRPOConfig, ModelConfig, ScriptArguments
  A  axolotl         the models of src/axolotl/utils/schemas, without those of single datasets
  X  xorl            docs/src/content/docs/config-reference/local.md

Usage: foreign_keys.py LLAMA_FACTORY AXOLOTL XORL, folders of clones. Needs trl. Made with trl 1.16.0, transformers 5.24, and the
clones of November 2026.
"""
import ast
import dataclasses
import pathlib
import re
import sys

import transformers
import trl

OUT = pathlib.Path(__file__).parent / "data" / "foreign_keys.txt"
NESTED = {"EBFTConfig": "ebft.", "TRLConfig": "trl.", "VllmConfig": "vllm."}
OF_DATASETS = {"SFTDataset", "PretrainingDataset", "UserDefinedPrompterType", "UserDefinedDPOType", "DPODataset",
               "StepwiseSupervisedDataset", "UserDefinedKTOType", "KTODataset", "SyntheticDataset", "SpecialTokensConfig", "LoftQConfig",
               "PeftConfig", "QATConfig", "PTQConfig", "LrGroup", "SelectiveCheckpointingConfig", "RoleBoundarySpec", "FSDPConfig",
               "DynamicCheckpointConfig"}


def fields(path):
    for c in ast.walk(ast.parse(path.read_text())):
        if isinstance(c, ast.ClassDef):
            for n in c.body:
                if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
                    yield c.name, n.target.id


def main():
    factory, axolotl, xorl = map(pathlib.Path, sys.argv[1:4])
    base = [f.name for f in dataclasses.fields(transformers.TrainingArguments)]
    keys = {("L", k) for k in base}
    for path in (factory / "src/llamafactory/hparams").glob("*_args.py"):
        if "megatron" not in path.name:
            keys |= {("L", k) for _, k in fields(path)}
    for c in (trl.SFTConfig, trl.DPOConfig, trl.KTOConfig, trl.RewardConfig, trl.GRPOConfig, trl.ModelConfig, trl.ScriptArguments):
        keys |= {("T", f.name) for f in dataclasses.fields(c)}
    for path in (axolotl / "src/axolotl/utils/schemas").glob("*.py"):
        if path.stem not in ("validation", "enums", "utils", "__init__"):
            keys |= {("A", NESTED.get(c, "") + k) for c, k in fields(path) if c not in OF_DATASETS}
    section = None
    for line in (xorl / "docs/src/content/docs/config-reference/local.md").read_text().split("\n"):
        if m := re.match(r"## `(\w+)` section", line):
            section = m.group(1)
        elif line.startswith("### Dataset entry"):
            section = None
        elif (m := re.match(r"\| `(\w+)` \|", line)) and section:
            keys.add(("X", section + "." + m.group(1)))
    OUT.write_text("".join(f"{p} {k}\n" for p, k in sorted(keys)))
    print(len(keys), "keys")


if __name__ == "__main__":
    main()
