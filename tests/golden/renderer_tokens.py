"""Goldens of renderers: text, token ids and learnt tokens of conversations, by transformers' apply_chat_template.

    renderer_tokens.py FOLDER      writes data/renderers.json; FOLDER comes from template_folder.py

The templates are those of the models and no part of this repository. Each family gets data/tokenizer/gpt2.json, a byte-level BPE, with the family's
special tokens added.

"ids" are those of apply_chat_template(tokenize=True). In the conversation with names of special tokens, those names must
stay text, which transformers cannot tell: it is rendered with one private character for each name; then each part between
special tokens is encoded by the BPE alone, with the names put back. The same way gives the ids of apply_chat_template for
all other conversations (asserted below). renderer_live.py compares many more conversations with the same rules and with TRL.

"learnt" are the tokens [begin, end) in {% generation %} blocks where the template has them (TRL's templates for training),
else those that each answer adds to its prompt, as TRL finds a completion; missing where prompt
and answer are not the beginning of the whole (a template that writes earlier turns otherwise). "extends" says whether all
prompts and turns of the conversation are prefixes of the next one.
"ids" is null where the template refuses.

Made with transformers 5.24.0 and tokenizers 0.23.3.
"""
import json
import os
import pathlib
import re
import sys

os.environ["TZ"] = "UTC"
import transformers.utils.chat_template_utils as ct  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from chat_templates import NOW, Clock, reference  # noqa: E402

DATA = pathlib.Path(__file__).parent / "data"
IM = ["<|im_start|>", "<|im_end|>"]
PIPE = "\uff5c"
DEEPSEEK = ["<%sbegin\u2581of\u2581sentence%s>" % (PIPE, PIPE), "<%send\u2581of\u2581sentence%s>" % (PIPE, PIPE),
            "<%sUser%s>" % (PIPE, PIPE), "<%sAssistant%s>" % (PIPE, PIPE)] + [
                "<%stool\u2581%s%s>" % (PIPE, name, PIPE) for name in ("calls\u2581begin", "calls\u2581end", "call\u2581begin",
                "call\u2581end", "outputs\u2581begin", "outputs\u2581end", "output\u2581begin", "output\u2581end", "sep")]
HEADERS = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
PHI = ["<s>", "<|endoftext|>", "<|system|>+", "<|user|>+", "<|assistant|>+", "<|end|>+"]  # +: takes the space after it
HARMONY = ["<|startoftext|>", "<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|constrain|>"]
V3 = ["<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
      "[/TOOL_RESULTS]"]

# renderer, template, a text of the template by which the renderer finds its variant, special tokens (bos, eos first)
FAMILIES = [
    ("chatml", "cpp_teknium-OpenHermes-2.5-Mistral-7B", "'<|im_start|>'", ["", "<|im_end|>", "<|im_start|>"]),
    ("qwen2_5", "Qwen-Qwen2.5-7B-Instruct", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", [""] + IM[::-1]),
    ("qwen3", "Qwen-Qwen3-0.6B", "last_query_index %}", [""] + IM[::-1]),
    ("qwen3", "trl_qwen3_instruct_2507", "within <tools></tools>", [""] + IM[::-1]),
    ("smollm2", "smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face", IM),
    ("llama2", "llama2", "<<SYS>>", ["<s>", "</s>"]),
    ("llama3", "trl_llama3", "<|start_header_id|>", HEADERS),
    ("llama3", "meta-llama-Llama-3.1-8B-Instruct", "<|start_header_id|> Cutting Knowledge Date tools_in_user_message", HEADERS),
    ("llama3", "meta-llama-Llama-3.2-3B-Instruct", "<|start_header_id|> Cutting Knowledge Date strftime_now tools_in_user_message", HEADERS),
    ("mistral", "py_mistral-instruct", "'[INST] ' eos_token + ' '", ["<s>", "</s>"]),
    ("mistral", "py_mixtral-instruct", "'[INST] '", ["<s>", "</s>"]),
    ("mistral_v3", "mistralai-Mistral-Nemo-Instruct-2407", "\"[INST]\" + system_message [AVAILABLE_TOOLS]", V3),
    ("mistral_v3", "axolotl_mistral_v2v3", "\"[INST] \" + system_message [AVAILABLE_TOOLS]", V3),
    ("gemma", "google-gemma-2-2b-it", "<start_of_turn>", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]),
    ("gemma", "trl_gemma3", "first_user_prefix <start_of_turn>", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]),
    ("phi", "trl_phi3", "<|end|>", PHI),
    ("phi", "trl_phi3_5", "<|end|> 'system' and message['content']", PHI),
    ("deepseek", "trl_deepseekv3", "<%sUser%s> is_first_sp %s" % (PIPE, PIPE, DEEPSEEK[4]), DEEPSEEK),
    ("deepseek", "deepseek-ai-DeepSeek-V3.1", "<%sUser%s> is_first_sp is_last_user %s" % (PIPE, PIPE, DEEPSEEK[4]), DEEPSEEK),
    ("deepseek", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "<%sUser%s>" % (PIPE, PIPE), DEEPSEEK),
    ("gpt_oss", "openai-gpt-oss-120b", "<|start|>system<|message|> render_typescript_type", HARMONY),
    ("qwen2_5", "trl_qwen2_5_training", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", [""] + IM[::-1]),
    ("qwen3", "trl_qwen3_training", "prefix-preserving always include thinking", [""] + IM[::-1]),
    ("qwen3", "trl_qwen3_instruct_2507_training", "within <tools></tools>", [""] + IM[::-1]),
    ("llama3", "trl_llama3_training", "<|start_header_id|>", HEADERS),
    ("gemma", "trl_gemma_training", "<start_of_turn>", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]),
    ("gemma", "trl_gemma3_training", "first_user_prefix <start_of_turn>", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]),
    ("phi", "trl_phi3_training", "<|end|>", PHI),
    ("phi", "trl_phi3_5_training", "<|end|> 'system' and message['content']", PHI),
    ("deepseek", "trl_deepseekv3_training", "<%sUser%s> is_first_sp %s ['arguments'] | tojson" % (PIPE, PIPE, DEEPSEEK[4]), DEEPSEEK),
    ("deepseek", "trl_deepseek_r1_distill_training", "<%sUser%s> always render the reasoning" % (PIPE, PIPE), DEEPSEEK),
    ("gpt_oss", "trl_gptoss_training", "<|start|>system<|message|> render_typescript_type", HARMONY),
    ("zephyr", "unsloth_zephyr", "<|user|>", ["<s>", "</s>"]),
    ("vicuna", "unsloth_vicuna", "A chat between a curious user and an artificial intelligence assistant", ["<s>", "</s>"]),
    ("vicuna", "unsloth_vicuna_old", "### Human: ", ["<s>", "</s>"]),
    ("vicuna", "cpp_eachadea-vicuna-13b-1.1", "USER: ", ["<s>", "</s>"]),
    ("vicuna", "cpp_Orca-Vicuna", "SYSTEM: ", ["<s>", "</s>"]),
    ("alpaca", "unsloth_alpaca", "Below are some instructions that describe some tasks", ["<s>", "</s>"]),
    ("alpaca", "axolotl_alpaca", "### Instruction:", ["<s>", "</s>"]),
    ("phi4", "unsloth_phi4", "'<|im_start|>assistant<|im_sep|>' + message['content']", [""] + IM[::-1] + ["<|im_sep|>"]),
    ("phi4", "cpp_phi-4", "<|im_end|><|im_start|>assistant<|im_sep|>", [""] + IM[::-1] + ["<|im_sep|>"]),
]
CALLS = {"qwen2_5", "qwen3", "llama3", "mistral_v3", "deepseek", "gpt_oss"}  # renderers that write calls of tools; others leave them to the template
NO_CALLS = {"trl_llama3", "trl_llama3_training", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "trl_deepseek_r1_distill_training"}  # their templates that have no text for calls


def writes_calls(renderer, template):
    return renderer in CALLS and template not in NO_CALLS



MARKS = "{% if false %}{% generation %}{% endgeneration %}{% endif %}"
NAMES = ["<|im_end|>", "</s>", "<|eot_id|>", "[/INST]", "<end_of_turn>", "<|end|>", DEEPSEEK[3]]


def u(text):
    return {"role": "user", "content": text}


def a(text, **more):
    return dict({"role": "assistant", "content": text}, **more)


def s(text):
    return {"role": "system", "content": text}


TOOL = {"type": "function", "function": {"name": "add", "description": "Adds \u00b5.", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {"a": 1.5, "b": [None, "\u00fc"]}}}
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks at %s.\nSays \"so\"." % " ".join(NAMES), "parameters": {
    "type": "object", "properties": {
        "place": {"type": "string", "description": "Where", "enum": ["here", "\"there\""], "default": "here"},
        "list": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "nullable": True},
        "point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": ["number", "null"]}}, "required": ["y"]},
        "which": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "integer", "default": 3}]},
        "rate": {"type": "number", "default": 1e-07}, "flag": {"type": "boolean", "default": False}, "any": {}},
    "required": ["place", "point"], "$defs": {}}, "return": {"type": "string"}, "version": "\"1\"\n", "empty": []}}


def look(i, place):
    return {"id": "call%05d" % i, "type": "function", "function": {"name": "look", "arguments": json.dumps({"place": place, "list": []})}}


def result(i, text):
    return {"role": "tool", "tool_call_id": "call%05d" % i, "content": text}


ROWS = [
    {"messages": [u("Hello"), a("Hi there.")]},
    {"messages": [s("Be brief."), u("2 + 2?"), a("4"), u("And 3 + 3?")], "add_generation_prompt": True},
    {"messages": [s("Gr\u00fc\u00dfe"), u("\u4f60\u597d \U0001f642 e\u0301"), a("\u041f\u0440\u0438\u0432\u0435\u0442\u200b"), u("c"), a("d")]},
    {"messages": [u(""), a("")]},
    {"messages": [u(" a "), a("\nb\n"), u("\n\nc"), a(" d  ")]},
    {"messages": [u("x %s y" % " ".join(NAMES)), a("".join(NAMES) + "z"), u("?"), a("!")]},
    {"messages": [s(""), u("line one\nline two")], "add_generation_prompt": True},
    {"messages": [u("a"), a("<think>\nhm\n</think>\n\nb"), u("c"), a("<think>\nx\n</think>\n\ny")]},
    {"messages": [u("a")], "chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True},
    {"messages": [s("s"), u("a"), a("", tool_calls=[CALL]), {"role": "tool", "content": "3", "tool_call_id": "call00001"},
                  a("Three.")], "tools": [TOOL]},
    {"messages": [u("a"), a("Let me look.", tool_calls=[look(1, "x %s y" % " ".join(NAMES))]), result(1, " {\"t\": \"\u00fc\"}\n"),
                  a("", tool_calls=[look(2, "there")]), result(2, "x%s\t\\\u0001" % "".join(NAMES)), a("So."), u("b"),
                  a("", tool_calls=[look(3, "")]), result(3, ""), a("That.")], "tools": [LOOK, TOOL]},
    {"messages": [u("a"), a("Both.", tool_calls=[look(1, "here"), look(2, "there")]), result(1, "x"), result(2, "y"), a("b"), u("c"),
                  a("", tool_calls=[look(3, "\u00fc"), look(4, "")])]},
    {"messages": [s(" s "), u("a"), a("", tool_calls=[look(1, "here")]), result(1, "[]")], "tools": [TOOL], "add_generation_prompt": True},
]
AT_NAMES, AT_TOOLS = 5, (9, 10, 11, 12)
AT_SEVERAL = 11  # several calls in a message: the template of gpt-oss writes the first, its renderer refuses them
OF_TRAINING = (0, 2, 4, 7, 9, 10, 11)  # rows for templates with {% generation %}, which say themselves what is learnt


def tokenizers(specials):
    """The family's special tokens, its tokenizer, and the BPE alone."""
    file = json.loads((DATA / "tokenizer" / "gpt2.json").read_text())
    first = len(file["model"]["vocab"])
    file["added_tokens"] = []
    alone = Tokenizer.from_str(json.dumps(file))
    for name in (x for x in specials if x):
        known = file["model"]["vocab"].get(name.rstrip("+"))
        file["added_tokens"].append({"id": first if known is None else known, "content": name.rstrip("+"), "single_word": False, "lstrip": False,
                                     "rstrip": name.endswith("+"), "normalized": False, "special": True})
        first += known is None
    return file["added_tokens"], Tokenizer.from_str(json.dumps(file)), alone


def how(row, prompt):
    return dict(row.get("chat_template_kwargs", {}), tools=row.get("tools"), add_generation_prompt=prompt)


def ids_of(tokenizer, row, prompt):
    return tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True, **how(row, prompt))["input_ids"]


class Family:
    def __init__(self, template, specials):
        self.template = template
        self.added, self.full, self.alone = tokenizers(specials)
        self.names = sorted((t["content"] for t in self.added), key=len, reverse=True)
        bos, eos = specials[0].rstrip("+"), specials[1].rstrip("+")
        self.tokens = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
        self.marks = "{% generation" in template or "{%- generation" in template
        self.fast = PreTrainedTokenizerFast(tokenizer_object=self.full, chat_template=template, **self.tokens)

    def write(self, folder):
        """Writes a model's folder with tokenizer and template."""
        folder = pathlib.Path(folder)
        self.full.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(self.tokens, chat_template=self.template)))

    def private(self, value):
        """The value with one private character for each name of a special token in its texts."""
        if isinstance(value, dict):
            return {k: self.private(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.private(v) for v in value]
        for i, name in enumerate(self.names if isinstance(value, str) else ()):
            value = value.replace(name, chr(0xe000 + i))
        return value

    def public(self, text):
        for i, name in enumerate(self.names):
            text = text.replace(chr(0xe000 + i), name)
        return text

    def by_parts(self, text):
        """The ids of a text of which private characters are names outside special tokens, and the characters [begin, end)
        of each in public(text)."""
        by_name = {t["content"]: t for t in self.added}
        ids, offsets, at, strips = [], [], 0, False
        for part in re.split("(%s)" % "|".join(map(re.escape, self.names)), text):
            if part in by_name:
                ids.append(by_name[part]["id"])
                offsets.append((at, at + len(part)))
                strips = by_name[part]["rstrip"]
                at += len(part)
                continue
            rest = part.lstrip() if strips else part
            if len(rest) < len(part):
                at += len(part) - len(rest)
                offsets[-1] = (offsets[-1][0], at)
            made = self.alone.encode(self.public(rest), add_special_tokens=False)
            ids += made.ids
            offsets += [(at + b, at + e) for b, e in made.offsets]
            at += len(self.public(rest))
            strips = strips and not rest
        return ids, offsets

    def text(self, row, prompt):
        return self.fast.apply_chat_template(row["messages"], tokenize=False, **how(row, prompt))

    def ids(self, row, prompt):
        return ids_of(self.fast, row, prompt)

    def render(self, row, messages, prompt):
        """(text, ids): names in contents are text."""
        row = dict(row, messages=messages)
        named = self.private(row)
        text = self.text(named, prompt)
        ids = self.by_parts(text)[0]
        if named == row:
            want = self.ids(row, prompt)
            assert ids == want, (text, ids, want)
        return self.public(text), ids

    def marked(self, row):
        """0 or 1 for each token: those with characters of {% generation %} blocks, as transformers' mask."""
        named = self.private(row)
        text, spans = reference(self.template, dict(named, add_generation_prompt=False), self.tokens)
        public = [[len(self.public(text.encode()[:at].decode())) for at in span] for span in spans]
        mask = [int(any(e > begin and b < end for begin, end in public)) for b, e in self.by_parts(text)[1]]
        if named == row:
            assert mask == self.mask(row), (text, spans, mask)
        return mask

    def mask(self, row):
        """The mask of transformers, where names in contents are tokens."""
        return self.fast.apply_chat_template(row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
                                             **how(row, False))["assistant_masks"]

    def case(self, index, row):
        messages = row["messages"]
        out = {"row": index}
        try:
            text, ids = self.render(row, messages, row.get("add_generation_prompt", False))
        except AssertionError:
            raise
        except Exception as e:  # what templates raise
            return dict(out, ids=None, why=str(e))
        out.update(text=text, ids=ids)
        learnt, extends, before = [], True, []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            try:
                prompt = self.render(row, messages[:i], True)[1]
                turn = self.render(row, messages[:i + 1], False)[1]
            except Exception:
                return out
            extends &= prompt[:len(before)] == before and turn[:len(prompt)] == prompt
            before = turn
            if learnt is not None:
                same = ids[:len(turn)] == turn and ids[:len(prompt)] == prompt
                learnt = learnt + [[len(prompt), len(turn)]] if same else None
        extends &= ids[:len(before)] == before
        if self.marks:
            mask = [0] + self.marked(row) + [0]
            edges = [i for i in range(len(mask) - 1) if mask[i] != mask[i + 1]]
            learnt = [list(part) for part in zip(edges[::2], edges[1::2])]
        if learnt is not None:
            out["learnt"] = learnt
        out["extends"] = extends
        return out


def main():
    ct.datetime = Clock
    families = []
    for renderer, name, probe, specials in FAMILIES:
        template = (pathlib.Path(sys.argv[1]) / (name + ".jinja")).read_text(encoding="utf-8")
        assert all(word in template for word in re.split(r" (?=<(?!/|tools)|is_|eos|'sys|Cutting|strf|always|tools_in|\[AV|\['arg|render_)", probe)), (name, probe)
        family = Family(template, specials)
        cases = [family.case(i, row) for i, row in enumerate(ROWS) if (i not in AT_TOOLS or writes_calls(renderer, name)) and (i != AT_SEVERAL or renderer != "gpt_oss") and (not family.marks or i in OF_TRAINING)]
        families.append({"renderer": renderer, "template": name, "probe": "{# %s #}%s" % (probe, MARKS if family.marks else ""), "tokens": family.tokens,
                         "added": family.added, "cases": cases})
    with open(DATA / "renderers.json", "w", encoding="utf-8") as f:
        f.write("{\"now\": %d, \"rows\": [\n%s],\n\"families\": [\n" % (NOW, ",\n".join(json.dumps(r) for r in ROWS)))
        for i, family in enumerate(families):
            cases = family.pop("cases")
            f.write(json.dumps(family)[:-1] + ", \"cases\": [\n" + ",\n".join(json.dumps(c) for c in cases) + "]}")
            f.write(",\n" if i + 1 < len(families) else "]}\n")


if __name__ == "__main__":
    main()
