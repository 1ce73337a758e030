"""Records of message lists and the token ids that TRL makes of them.

data/chat_lists/template.jinja      a template in the manner of ChatML, with tools
data/chat_lists/pairs.jsonl         prompt, chosen, rejected as lists of messages; some without a prompt
data/chat_lists/completions.jsonl   prompt and completion
data/chat_lists/want.json           {"pairs": {"NAME": [[prompt ids, chosen ids, rejected ids], ...]},
                                     "completions": {"NAME": [[prompt ids, completion ids], ...]}}

The prompt of pairs without one comes from TRL's extract_prompt; the tokenisation is the steps of tokenize_fn in
DPOTrainer._prepare_dataset and KTOTrainer._prepare_dataset for conversations.

Made with trl 1.16.0, transformers 5.23:  python tests/golden/chat_lists.py   (after tokenizer.py)
"""
import json
import pathlib

from transformers import PreTrainedTokenizerFast
from trl.data_utils import extract_prompt
from trl.trainer.dpo_trainer import common_prefix_length

DATA = pathlib.Path(__file__).parent / "data"
OUT = DATA / "chat_lists"
TEMPLATE = """{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}
{%- if tools %}{{- 'tools: ' + (tools | tojson) + '\\n' }}{% endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def render(tok, messages, record, **more):
    tools = record.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) else tools
    return tok.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=True,
                                   **record.get("chat_template_kwargs", {}), **more)["input_ids"]


def split(tok, record, names):
    if "prompt" not in record:
        record = {**record, **extract_prompt(record)}
    prompt = render(tok, record["prompt"], record, add_generation_prompt=True)
    full = [render(tok, record["prompt"] + record[n], record) for n in names]
    n = min(common_prefix_length(prompt, f) for f in full)
    return [prompt[:n]] + [f[n:] for f in full]


def main():
    tool = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    pairs = [
        {"prompt": [user("What turns?")], "chosen": [answer("The tool.")], "rejected": [answer("The")]},
        {"chosen": [user("Hi"), answer("Hello")], "rejected": [user("Hi"), answer("Go away")]},
        {"chosen": [{"role": "system", "content": "Be brief."}, user("a"), answer("b"), user("c"), answer("d")],
         "rejected": [{"role": "system", "content": "Be brief."}, user("a"), answer("b"), user("c"), answer("e"),
                      user("f"), answer("g")]},
        {"chosen": [user("same"), answer("same")], "rejected": [user("same"), answer("same")]},
        {"prompt": [user("車床")], "chosen": [answer(" é")], "rejected": [answer("")], "tools": tool},
        {"prompt": [user("x")], "chosen": [answer("y")], "rejected": [answer("z")], "tools": json.dumps(tool)},
    ]
    completions = [
        {"prompt": [user("the to")], "completion": [answer("ol")]},
        {"prompt": [{"role": "system", "content": "s"}, user("q")], "completion": [answer("r"), user("t"), answer("u")]},
        {"prompt": [user("q"), answer("half")], "completion": [answer("whole")]},
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "template.jinja").write_text(TEMPLATE)
    for name, records in (("pairs", pairs), ("completions", completions)):
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    want = {"pairs": {}, "completions": {}}
    for name in ("gpt2", "llama3"):
        tok = PreTrainedTokenizerFast(tokenizer_file=str(DATA / "tokenizer" / f"{name}.json"), chat_template=TEMPLATE)
        want["pairs"][name] = [split(tok, r, ["chosen", "rejected"]) for r in pairs]
        want["completions"][name] = [split(tok, r, ["completion"]) for r in completions]
    (OUT / "want.json").write_text(json.dumps(want, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
