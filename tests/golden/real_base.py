"""Fine-tunes a model folder as a base model to which a chat template is added, and looks where its answers end.

    python tests/golden/real_base.py MODEL LATHE [--steps 40] [--ends '<|im_end|>,<file_sep>']

MODEL  a Hugging Face folder of a causal language model, with its tokenizer
LATHE  the command

The folder loses its chat template, and its end of an answer: the only end token left is that of a text (id 0 of
SmolLM2). Then a template is written whose turns end with a token of --ends, and all weights learn eight short
answers. <|im_end|> is the end that an instruction model knows, <file_sep> one that it never wrote after an answer.
Printed, one line for each end:
  told          the start of the training names the token as an end that the folder does not have
  folder        generation_config.json of the checkpoint has it beside the old one
  chat          answers of `lathe chat` are the learnt ones, and nothing after them
  messages      those of `lathe generate --messages` too
  ppo           no completion of a step of `ppo` from the checkpoint is cut at the limit
  transformers  AutoModelForCausalLM.generate() of the folder ends with the token, and its text is Lathe's
  control       with the base's generation_config.json, transformers goes on after the answer

Exits with 1 when something differs, 2 when it cannot run. Needs torch and transformers.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

LIMIT = 48  # new tokens; the longest answer has 12
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + 'END' + '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TALK = [
    ("What turns in a lathe?", "The spindle turns the work."),
    ("What holds the work?", "A chuck with three jaws."),
    ("What cuts the metal?", "A tool of carbide."),
    ("What cools the cut?", "Oil, or air."),
    ("Who runs the machine?", "The turner does."),
    ("What is a bore?", "A hole that is turned."),
    ("Name a thread.", "M8 by 1.25."),
    ("Is it true?", "Yes, within a micron."),
]


def base_folder(model, folder, end):
    """The model without template and end of an answer, and with the added template."""
    shutil.copytree(model, folder)
    for name in ("chat_template.jinja", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    for name, values in (("tokenizer_config.json", {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}),
                         ("config.json", {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}),
                         ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})):
        content = json.loads((folder / name).read_text())
        content.pop("chat_template", None)
        content.update(values)
        (folder / name).write_text(json.dumps(content, indent=2))
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("END", end))


def run_file(path, model, data, stage, out, steps):
    path.write_text(f"""[model]
path = "{model}"
[data]
datasets = [{{ path = "{data}" }}]
seq_len = 128
cache_dir = "{path.parent / 'cache'}"
[stage]
{stage}
[adapter]
name = "full"
[optimizer]
name = "adamw"
lr = 2e-4
[scheduler]
name = "constant"
[train]
precision = "fp32"
micro_batch_size = 2
max_steps = {steps}
[checkpoint]
dir = "{out}"
[log]
progress = "off"
""")
    return path


def call(command, text=None):
    done = subprocess.run([str(c) for c in command], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done


def report(name, is_good, what):
    print(f"{name:<12} {'right' if is_good else 'WRONG'}: {what}", flush=True)
    return is_good


def theirs(folder, tokenizer, model, **more):
    """Tokens that transformers makes after each question, each list with the token at which it ended."""
    import torch
    made = []
    for question, _ in TALK:
        text = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LIMIT, pad_token_id=0, **more)
        made.append(out[0, ids.shape[1]:].tolist())
    return made


def compare_transformers(folder, end):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    end_id = tokenizer.convert_tokens_to_ids(end)
    made = theirs(folder, tokenizer, model)
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in made]
    n = sum(ids[-1] == end_id and text == want for ids, text, (_, want) in zip(made, texts, TALK))
    good = report("transformers", n == len(TALK), f"{n} of {len(TALK)} answers of generate() end with {end} and are Lathe's")
    model.generation_config.eos_token_id = 0
    on = sum(len(ids) > len(ended) for ids, ended in zip(theirs(folder, tokenizer, model), made))
    return report("control", on == len(TALK), f"with the end tokens of the base, {on} of {len(TALK)} go on") and good


def answers(args, folder):
    """The answers of chat, and of generate --messages."""
    common = ["--temperature", "0", "--max-new-tokens", str(LIMIT), "--train.precision", "fp32"]
    chat = [call([args.lathe, "chat", folder, *common], question + "\n").stdout for question, _ in TALK]
    messages = [call([args.lathe, "generate", folder, "--messages", "-", *common],
                     json.dumps([{"role": "user", "content": question}])).stdout for question, _ in TALK]
    return chat, messages


def check(args, end, work):
    print(f"-- a template that ends its turns with {end}", flush=True)
    base_folder(args.model, work / "base", end)
    talk = work / "talk.jsonl"
    talk.write_text("".join(json.dumps({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}) + "\n"
                            for q, a in TALK))
    sft = run_file(work / "sft.toml", work / "base", talk, 'name = "sft"', work / "sft", args.steps)
    said = call([args.lathe, "train", sft]).stderr
    good = report("told", f"ends an answer with {end} (" in said and "none of the model's end tokens" in said,
                  next((line[line.find("warning"):] for line in said.splitlines() if "end tokens" in line), "nothing of end tokens"))
    folder = work / "sft" / (work / "sft" / "latest").read_text().strip()
    ends = json.loads((folder / "generation_config.json").read_text()).get("eos_token_id")
    good &= report("folder", isinstance(ends, list) and ends[0] == 0 and len(ends) == 2, f"eos_token_id is {ends}, that of the base was 0")
    for name, got in zip(("chat", "messages"), answers(args, folder)):
        n = sum(text.strip("\n") == want for text, (_, want) in zip(got, TALK))
        good &= report(name, n == len(TALK), f"{n} of {len(TALK)} answers are the learnt ones" + ("" if n == len(TALK) else f": {got}"))
    stage = f'name = "ppo"\nmax_new_tokens = {LIMIT}\ngroup = 2\n[reward]\nname = "length"\ntokens = 8\nbuffer_tokens = 4'
    call([args.lathe, "train", run_file(work / "ppo.toml", folder, talk, stage, work / "ppo", 1)])
    step = json.loads((work / "ppo" / "metrics.jsonl").read_text().splitlines()[0])
    cut = step.get("completions/clipped_ratio", "unknown")
    good &= report("ppo", cut == 0, f"completions/clipped_ratio is {cut}, their mean length {step.get('completions/mean_length')} of {LIMIT} tokens at most")
    return compare_transformers(folder, end) and good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("lathe")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ends", default="<|im_end|>,<file_sep>")
    args = parser.parse_args()
    try:
        import torch  # noqa: F401
        from transformers.utils import logging
    except ImportError as e:
        print(f"{e}: this check needs torch and transformers", file=sys.stderr)
        return 2
    logging.disable_progress_bar()
    good = True
    for end in args.ends.split(","):
        with tempfile.TemporaryDirectory() as work:
            good = check(args, end, pathlib.Path(work)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
