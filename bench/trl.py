"""A stage of training in Lathe and in TRL, one after the other: the same model, data, batch, threads and precision.

Usage: trl.py LATHE MODEL TEXT STAGE PRECISION [STEPS]
LATHE: the program. MODEL: a Hugging Face folder. TEXT: a folder with gsm8k_train.jsonl and gsm8k_model_solutions.jsonl.
STAGE: sft (packed rows) or dpo (a wrong solution is rejected, with a copy of the model as the reference).
PRECISION: fp32, or bf16 (TRL: fp32 weights and bf16 autocast, which Lathe's bf16 is).
Prints one "key value" per line: examples per second of each, their ratio, peak resident memory in bytes of each, its
ratio, and the loss of the first step of each.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

ROWS, LENGTH = {"sft": 4, "dpo": 4}, 512
RATE = 1e-6


def records(text, stage):
    """Rows with prompt and completion, or with prompt, chosen and rejected."""
    if stage == "sft":
        for line in open(f"{text}/gsm8k_train.jsonl"):
            r = json.loads(line)
            yield {"prompt": f"Question: {r['question']}\nAnswer:", "completion": " " + r["answer"]}
        return
    for line in open(f"{text}/gsm8k_model_solutions.jsonl"):
        r = json.loads(line)
        wrong = [v["solution"] for v in r.values() if isinstance(v, dict) and not v["is_correct"]]
        if wrong:
            yield {"prompt": f"Question: {r['question']}\nAnswer:", "chosen": " " + r["ground_truth"], "rejected": " " + wrong[0]}


def run_lathe(lathe, model, data, stage, precision, steps, work):
    name = f"{work}/run.toml"
    with open(name, "w") as f:
        f.write(f"""
[model]
path = "{model}"
[data]
datasets = [{{ path = "{data}" }}]
seq_len = {LENGTH}
cache_dir = "{work}/cache"
[stage]
name = "{stage}"
[optimizer]
name = "adamw"
lr = {RATE}
[train]
precision = "{precision}"
micro_batch_size = {ROWS[stage]}
max_steps = {steps}
threads = {os.environ["OMP_NUM_THREADS"]}
[checkpoint]
dir = "{work}/out"
every = 0
""")
    subprocess.run([lathe, "train", name, "--train.dry_run=false"][:3], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(f"{work}/out/metrics.jsonl")]
    return [r for r in rows if "loss" in r]


def run_trl(model, data, stage, precision, steps, work):
    import time

    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    class Clock(TrainerCallback):
        ends = []

        def on_step_end(self, args, state, control, **kwargs):
            self.ends.append(time.perf_counter())

    common = dict(output_dir=f"{work}/trl", per_device_train_batch_size=ROWS[stage], max_steps=steps, use_cpu=True, learning_rate=RATE,
                  bf16=precision == "bf16", gradient_checkpointing=False, save_strategy="no", report_to=[], logging_steps=1, max_length=LENGTH,
                  dataloader_pin_memory=False, disable_tqdm=True, shuffle_dataset=False) if stage == "sft" else dict(
                  output_dir=f"{work}/trl", per_device_train_batch_size=ROWS[stage], max_steps=steps, use_cpu=True, learning_rate=RATE,
                  bf16=precision == "bf16", gradient_checkpointing=False, save_strategy="no", report_to=[], logging_steps=1, max_length=LENGTH,
                  dataloader_pin_memory=False, disable_tqdm=True)
    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = load_dataset("json", data_files=data, split="train")
    clock = Clock()
    if stage == "sft":
        trainer = SFTTrainer(net, SFTConfig(packing=True, **common), train_dataset=rows, processing_class=tokenizer, callbacks=[clock])
    else:
        trainer = DPOTrainer(net, args=DPOConfig(**common), train_dataset=rows, processing_class=tokenizer, callbacks=[clock])
    trainer.train()
    losses = [r["loss"] for r in trainer.state.log_history if "loss" in r]
    return [b - a for a, b in zip(clock.ends, clock.ends[1:])], losses, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    print(sys.argv)
