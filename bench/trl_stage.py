"""A stage of training in Lathe and then in TRL: the same model, data, rows, threads and precision.

Usage: trl_stage.py LATHE MODEL TEXT STAGE PRECISION [STEPS]
LATHE: the program. MODEL: a Hugging Face folder. TEXT: a folder with gsm8k_train.jsonl and gsm8k_model_solutions.jsonl.
STAGE: sft, packed rows of 512 tokens; dpo, pairs of the true solution and a wrong one of a model, at most 512 tokens
each, with a copy of the model as the reference; or grpo, stage ppo with advantages relative to a group: a step writes 8
completions of at most 64 tokens for each of 8 questions, rewards those whose last number is the answer, and learns from them once. PRECISION: fp32; or bf16, which in TRL is bf16 autocast over fp32 weights,
as Lathe's is. Both start with the model's weights in fp32 and train all of them with AdamW.

The data are as many examples as the steps take, so that both train on the same ones. Prints one "key value" per line:
rate_lathe, rate_trl (packed tokens, pairs, or completions per second without the first step), memory_lathe, memory_trl (bytes, peak
resident), loss_lathe, loss_trl (mean over the steps; of grpo each has its own samples).
"""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

ROWS, LENGTH = 4, 512
PROMPTS, GROUP, NEW_TOKENS, GROUP_ROWS = 8, 8, 64, 8  # of grpo; rows of a micro-batch
NUMBER = r"-?[0-9][0-9,]*"
RATE = 1e-6


def per_step(stage):
    """What a step trains on, in the unit of the rate."""
    return {"sft": ROWS * LENGTH, "dpo": ROWS, "grpo": PROMPTS * GROUP}[stage]


def records(text, stage):
    """Rows with prompt and completion (grpo: answer), or with prompt, chosen and rejected."""
    if stage != "dpo":
        for line in open(f"{text}/gsm8k_train.jsonl"):
            r = json.loads(line)
            yield {"prompt": f"Question: {r['question']}\nAnswer:", "completion" if stage == "sft" else "answer": " " + r["answer"]}
        return
    for line in open(f"{text}/gsm8k_model_solutions.jsonl"):
        r = json.loads(line)
        wrong = [v["solution"] for v in r.values() if isinstance(v, dict) and not v["is_correct"]]
        if wrong:
            yield {"prompt": f"Question: {r['question']}\nAnswer:", "chosen": " " + r["ground_truth"], "rejected": " " + wrong[0]}


def write_data(text, stage, steps, name):
    n = {"sft": 3 * ROWS, "dpo": ROWS, "grpo": PROMPTS}[stage]  # an example of sft has some 170 tokens; packed rows take all of them
    with open(name, "w") as out:
        for r, _ in zip(records(text, stage), range(n * steps)):
            out.write(json.dumps(r) + "\n")


def run_lathe(lathe, model, data, stage, precision, steps, work):
    """Returns step seconds, losses and peak resident bytes."""
    open(f"{work}/run.toml", "w").close()
    args = [lathe, "train", f"{work}/run.toml", "--model.path", model, "--data.datasets", f'[{{path = "{data}"}}]', "--data.seq_len", str(LENGTH),
            "--data.cache_dir", f"{work}/cache", "--stage.name", "ppo" if stage == "grpo" else stage, "--optimizer.lr", str(RATE), "--train.precision", precision,
            "--train.micro_batch_size", str(GROUP_ROWS if stage == "grpo" else ROWS), "--train.max_steps", str(steps), "--train.threads", os.environ["OMP_NUM_THREADS"], "--device.name", "cpu",
            "--checkpoint.dir", f"{work}/out", "--log.progress", "off"]
    if stage == "grpo":
        args += ["--stage.prompts", str(PROMPTS), "--stage.group", str(GROUP), "--stage.max_new_tokens", str(NEW_TOKENS), "--reward.name", "match",
                 "--reward.pattern", NUMBER, "--reward.column_pattern", NUMBER, "--generate.batch", str(PROMPTS * GROUP)]
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(f"{work}/out/metrics.jsonl")]
    rows = [r for r in rows if "step_seconds" in r]
    return [r["step_seconds"] for r in rows], [r["loss"] for r in rows], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def run_trl(model, data, stage, precision, steps, work):
    import time

    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    class Clock(TrainerCallback):
        def __init__(self):
            self.begins, self.seconds = 0.0, []

        def on_step_begin(self, args, state, control, **kwargs):
            self.begins = time.perf_counter()

        def on_step_end(self, args, state, control, **kwargs):
            self.seconds.append(time.perf_counter() - self.begins)

    settings = dict(output_dir=f"{work}/trl", per_device_train_batch_size=ROWS, max_steps=steps, use_cpu=True, learning_rate=RATE,
                    bf16=precision == "bf16", gradient_checkpointing=False, save_strategy="no", report_to=[], logging_steps=1,
                    dataloader_pin_memory=False, disable_tqdm=True)

    def last_number(text):
        found = re.findall(NUMBER, text)
        return float(found[-1].replace(",", "")) if found else None

    def is_right(completions, answer, **kwargs):
        return [float(last_number(c) == last_number(a)) for c, a in zip(completions, answer)]

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = load_dataset("json", data_files=data, split="train", cache_dir=f"{work}/datasets")
    clock = Clock()
    if stage == "sft":
        trainer = SFTTrainer(net, args=SFTConfig(packing=True, max_length=LENGTH, **settings), train_dataset=rows, processing_class=tokenizer, callbacks=[clock])
    elif stage == "grpo":
        settings |= dict(per_device_train_batch_size=GROUP_ROWS, gradient_accumulation_steps=PROMPTS * GROUP // GROUP_ROWS)
        trainer = GRPOTrainer(net, is_right, args=GRPOConfig(num_generations=GROUP, max_completion_length=NEW_TOKENS, **settings),
                              train_dataset=rows, processing_class=tokenizer, callbacks=[clock])
    else:
        trainer = DPOTrainer(net, args=DPOConfig(max_length=LENGTH, **settings), train_dataset=rows, processing_class=tokenizer, callbacks=[clock])
    trainer.train()
    return clock.seconds, [r["loss"] for r in trainer.state.log_history if "loss" in r], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    lathe, model, text, stage, precision = sys.argv[1:6]
    steps = int(sys.argv[6]) if len(sys.argv) > 6 else 6
    if stage not in ("sft", "dpo", "grpo") or precision not in ("fp32", "bf16"):
        sys.exit("trl_stage.py: STAGE is sft, dpo or grpo, PRECISION is fp32 or bf16")
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with tempfile.TemporaryDirectory() as work:
        data = f"{work}/data.jsonl"
        write_data(text, stage, steps, data)
        for name in ("lathe", "trl"):
            run = (run_lathe, (lathe,)) if name == "lathe" else (run_trl, ())
            seconds, losses, memory = run[0](*run[1], model, data, stage, precision, steps, work)
            print(f"rate_{name} {per_step(stage) * (len(seconds) - 1) / sum(seconds[1:]):.6g}")
            print(f"memory_{name} {memory}")
            print(f"loss_{name} {sum(losses) / len(losses):.6g}", flush=True)


if __name__ == "__main__":
    main()
