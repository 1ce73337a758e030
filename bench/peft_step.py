#!/usr/bin/env python3
"""Steps of PEFT beside bench tables: tokens/s and peak memory of LoRA or QLoRA.

    peft_step.py MODEL TEXT lora|qlora [STEPS] [fp32|bf16]

MODEL is a Hugging Face folder, TEXT a text file. One row of 512 tokens a step, AdamW, rank 32 on all linear layers, two threads. qlora: bitsandbytes' nf4 with
double quantization, on the CPU. Prints "key value" lines: the median step's tokens/s, and VmHWM. Needs torch, transformers, peft, bitsandbytes.
"""
import statistics
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

ROW = 512
model_dir, text, method = sys.argv[1:4]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 8
dtype = torch.float32 if sys.argv[5:] == ["fp32"] else torch.bfloat16
torch.set_num_threads(2)
torch.manual_seed(0)
options = {"dtype": dtype}
if method == "qlora":
    options["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                        bnb_4bit_compute_dtype=dtype)
model = AutoModelForCausalLM.from_pretrained(model_dir, **options)
model = get_peft_model(model, LoraConfig(r=32, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
ids = AutoTokenizer.from_pretrained(model_dir)(open(text).read()[:100000])["input_ids"]
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
times = []
for step in range(steps + 2):
    row = torch.tensor([ids[step * ROW:(step + 1) * ROW]])
    begun = time.perf_counter()
    loss = model(input_ids=row, labels=row).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - begun)
print("tokens_per_s %.1f" % (ROW / statistics.median(times[2:])))
print("loss %.4f" % loss.item())
print("peak_kib %s" % next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
