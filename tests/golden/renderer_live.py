#!/usr/bin/env python3
"""Compares what Lathe makes of conversations with transformers and TRL: text, token ids, learnt tokens.

    renderer_live.py LATHE FOLDER [--only NAME] [--show N] [--model DIR]

LATHE is the lathe command, FOLDER comes from template_folder.py. For each template of renderer_tokens.FAMILIES this makes
a model's folder (tokenizer.json, tokenizer_config.json with the template) and gives `lathe chat-template --json --tokens`
the conversations of chat_templates.py, more of its kind with names of the family's special tokens, and as many with rounds of
calls of tools (tool_talk), until the renderer has served at least CONVERSATIONS of them and TRL has made masks of as many. Of each conversation it renders the whole, the whole with a generation prompt,
and for each answer the prompt before it and the text up to it. The command must choose the family's renderer by itself.

- Text: that of apply_chat_template(tokenize=False).
- Ids: those of apply_chat_template(tokenize=True). What the renderer serves has names in contents as text: there the
  expected ids are those of renderer_tokens.Family.render.
- Learnt tokens: the labels that TRL's SFTTrainer._prepare_dataset makes, with assistant_only_loss where the template has
  {% generation %}, else of each answer as the completion of its prompt. TRL cannot tell names in contents from tokens; for
  conversations with such names its rules are applied to the expected ids. Where the prompt is no beginning of the text with
  the answer ("cut": templates that end a prompt with <think>, or write the system message into the last question), TRL
  warns and learns from the first other token on, which is chance; there the answer's content and what ends the turn must
  be learnt, and nothing before it but space.
- Whether prompts and turns extend each other, by the tokens, and the renderer's flag: it is set exactly if they do in all
  conversations of all templates of the renderer.
- Where transformers refuses, Lathe must refuse.

--model also compares the ids of a real model's folder (tokenizer and template), on conversations without names of its tokens.

Exit code 1: a difference. Needs transformers, trl and datasets.
"""
import collections
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
import types

os.environ["TZ"] = "UTC"
os.environ["HF_HUB_OFFLINE"] = "1"
import datasets  # noqa: E402
import transformers  # noqa: E402
import transformers.utils.chat_template_utils as ctu  # noqa: E402
from trl import SFTTrainer  # noqa: E402
from trl.trainer.sft_trainer import common_prefix_length  # noqa: E402

import chat_templates as ct  # noqa: E402
import renderer_tokens as rt  # noqa: E402

CONVERSATIONS, CHUNK, MOST = 50, 50, 500
WITH_CALLS = 25  # conversations with calls that a renderer of rt.CALLS must serve
SCHEMAS = [
    {"type": "string", "description": "A name\nof two lines", "enum": ["a b", "\"q\"", "\u00fc"], "default": "a b"},
    {"type": "string", "nullable": True, "description": ""}, {"type": ["string", "null"], "default": None}, {},
    {"type": "number", "default": 1e-07, "minimum": -1.5}, {"type": "integer", "default": 0, "maximum": 10**18}, {"type": "boolean", "default": False},
    {"type": "array", "items": {"type": "string"}, "nullable": True}, {"type": "array", "items": {}, "default": []}, {"type": "array"},
    {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}},
    {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "string"}}, "required": ["y"]}},
    {"type": "array", "items": {"type": "object", "properties": {"long_name_of_a_property": {"type": "number"}, "another_long_name": {"type": "string"}}}},
    {"type": "array", "items": {"type": ["object", "object"]}}, {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a", {}]},
    {"type": "object"}, {"type": "object", "properties": {}}, {"type": "object", "properties": {"deep": {"type": "object", "properties": {
        "k": {"type": "string", "description": "not shown"}, "l": {"type": "array", "items": {"type": "boolean"}}}, "required": ["l"]}}, "required": ["deep"]},
    {"oneOf": [{"type": "string", "description": "one"}, {"type": "number", "default": 2.5, "description": "two"}, {"type": "object"}], "default": "x"},
    {"oneOf": [{"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "null"}, {"type": ["object"]}, {"$ref": "#/$defs/T"},
]
VALUES = ["text", "K\u00f6ln \U0001f642", "it's \"q\" \\ \n\t\u0007\u007f", "", 3, -1.5, 1e22, 1e-07, 1234567890123456789, True, False, None, [], {}, [[]], [1, "a", {"k": []}],
          {"a": {"b": [None]}, "": " "}]
ANSWERS = ["22", "{\"t\": 22.5, \"l\": [1, 2]}", "", "Fehler: \u00c4\n\"x\"\t\\", " 3 \n", "[{\"a\": null}]", "\u0001\u001f\u007f\u2028"]


def conversations(family, seeds):
    """(seed, conversation) for each seed. Contents of even ones have names of the family's special tokens among them."""
    plain = [text for text in ct.TEXTS if family.private(text) == text]
    named = ct.TEXTS + ["x %s y" % " ".join(family.names), "".join(family.names) + "z", " " + family.names[-1] + "\n"]
    for seed in seeds:
        talk = ct.conversation(seed, plain if seed % 2 else named)
        if talk["messages"]:
            yield seed, talk
        yield MOST + seed, tool_talk(seed, plain if seed % 2 else named, ["no name"] if seed % 2 else family.names)


def tool(rng, names, i):
    """A tool. Most families write what is in it as it stands, gpt-oss as TypeScript."""
    properties = {"p%d" % k: rng.choice(SCHEMAS) for k in range(rng.randint(0, 4))}
    function = {"name": "f%d" % i, "description": rng.choice(["Does it.", "Two\nlines: \"x\" \\ \u00b5", "In %s out" % rng.choice(names)])}
    if properties or rng.random() < 0.5:
        function["parameters"] = dict({"type": "object", "properties": properties}, **rng.choice(
            [{}, {"required": sorted(properties)[:1]}, {"required": []}, {"additionalProperties": False, "$defs": {}}]))
    function.update(rng.choice([{}, {}, {"strict": True}, {"return": {"type": "string"}, "note": None}, {"version": "\"1\"\n", "rate": 0.1}]))
    if rng.random() < 0.05:
        del function["description"]
    function = dict(rng.sample(sorted(function.items()), len(function))) if rng.random() < 0.2 else function
    return rng.choice([function, {"function": function}]) if rng.random() < 0.03 else {"type": "function", "function": function}


def tool_call(rng, names, i, as_text):
    arguments = {"a%d" % k: rng.choice(VALUES + ["at %s." % rng.choice(names)]) for k in range(rng.randint(0, 3))}
    if as_text:
        arguments = json.dumps(arguments, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 2]))
    function = {"name": "f%d" % rng.randint(0, 2), "arguments": arguments}
    if rng.random() < 0.1:
        function = dict({"arguments": arguments, "name": function["name"]}, **rng.choice([{}, {"content_type": "code"}, {"x": [1, {}]}]))
    call = {"id": "call%05d" % i if rng.random() < 0.97 else rng.choice(["\u00fc" * 9, "call1", None, 123456789]), "type": "function", "function": function}
    if rng.random() < 0.03:
        del call[rng.choice(["id", "type"])]
    return dict(call, **call.pop("function")) if rng.random() < 0.02 else call


def tool_talk(seed, texts, names):
    """Conversations with tools: rounds of calls and their answers between question and answer."""
    rng = random.Random("tools %d" % seed)
    as_text, most, most_rounds = seed % 3 == 0, 1 if seed % 4 else 3, rng.randint(1, 3)
    contents = rng.choice([[None], [""], ["Let me look."], ["", "Let me look."], [None, "", "Wait: %s" % rng.choice(names)]])
    messages = [{"role": "system", "content": rng.choice(texts)}] if rng.random() < 0.4 else []
    for turn in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": rng.choice(texts)})
        for r in range(rng.randint(0 if turn else 1, most_rounds)):
            calls = [tool_call(rng, names, 100 * turn + 10 * r + k, as_text) for k in range(rng.randint(1, most))]
            messages.append({"role": "assistant", "content": rng.choice(contents), "tool_calls": calls})
            if messages[-1]["content"] is None and rng.random() < 0.5:
                del messages[-1]["content"]
            elif not messages[-1]["content"] and rng.random() < 0.3:
                messages[-1]["reasoning_content"] = rng.choice(["I need\na tool.", "", "%s?" % rng.choice(names)])
            for c in calls if rng.random() < 0.95 else calls[1:]:
                messages.append({"role": "tool", "tool_call_id": c.get("id"), "content": rng.choice(ANSWERS + ["x %s y" % rng.choice(names)])})
        if rng.random() < 0.8:
            messages.append({"role": "assistant", "content": rng.choice(texts)})
            if rng.random() < 0.1:
                messages[-1]["reasoning_content"] = "So it is."
    talk = {"messages": messages}
    if rng.random() < 0.8:
        talk["tools"] = [tool(rng, names, i) for i in range(rng.randint(1, 3))]
    return talk


def requests(talk):
    """(what, row) of a conversation: "whole", "prompted", and of each answer ("prompt", i) and ("turn", i)."""
    yield "whole", dict(talk, add_generation_prompt=False)
    yield "prompted", dict(talk, add_generation_prompt=True)
    for i, message in enumerate(talk["messages"]):
        if message["role"] == "assistant" and i > 0:
            yield ("prompt", i), dict(talk, messages=talk["messages"][:i], add_generation_prompt=True)
            yield ("turn", i), dict(talk, messages=talk["messages"][:i + 1], add_generation_prompt=False)


def labels(family, rows, assistant_only):
    """What TRL trains of each row: its ids, with -100 where nothing is learnt."""
    if not rows:
        return []
    trainer = types.SimpleNamespace(chat_template=None, _tokenizer=family.fast, completion_only_loss=not assistant_only)
    how = types.SimpleNamespace(dataset_num_proc=None, dataset_text_field="text", assistant_only_loss=assistant_only,
                                max_length=None, shuffle_dataset=False)
    data = datasets.IterableDataset.from_generator(lambda: iter(rows))
    made = SFTTrainer._prepare_dataset(trainer, data, family.fast, how, False, None, "train")
    return [(row["input_ids"], [label != -100 for label in row["labels"]]) for row in made]


class Expected:
    """What transformers and TRL make of a request."""

    def __init__(self, family, row, served):
        self.error, self.learnt, self.begin = None, None, None
        self.row = row
        self.served, self.named, self.by_trl = served, False, False
        prompt = row["add_generation_prompt"]
        try:
            self.text = family.text(row, prompt)
            self.ids = family.render(row, row["messages"], prompt)[1] if served else family.ids(row, prompt)
        except AssertionError:
            raise
        except Exception as e:  # what templates raise
            self.error = e
            return
        self.named = served and family.private(row) != row


class Check:
    """A family's comparison."""

    def __init__(self, command, renderer, template, family, show):
        self.command, self.renderer, self.family, self.show = command, renderer, family, show
        self.counts = collections.Counter()
        self.calls = WITH_CALLS if rt.writes_calls(renderer, template) else 0

    def wrong(self, why, row, want, got):
        self.counts["differences"] += 1
        if self.show > 0:
            self.show -= 1
            print("--- %s\nrow  %s\nwant %r\ngot  %r" % (why, json.dumps(row), want, got))

    def lathe(self, folder, rows):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as data:
            for row in rows:
                data.write(json.dumps(row) + "\n")
            data.flush()
            return ct.lathe(self.command, folder, data.name, "auto", "--tokens")

    def compare_ids(self, row, got):
        """The expected result of a request after comparing text and ids; None: both refuse."""
        served = got.get("renderer", "jinja") != "jinja"
        want = Expected(self.family, row, served)
        if want.error or "error" in got:
            if not (want.error and "error" in got):
                self.wrong("one refuses", row, want.error or want.text, got)
            return None
        if want.text != got["text"]:
            self.wrong("text", row, want.text, got["text"])
        if want.ids != got["ids"]:
            self.wrong("ids", row, want.ids, got["ids"])
        self.counts["tokens"] += len(want.ids)
        return want

    def compare_learnt(self, row, want, got):
        """want: 0 or 1 for each token, None where there is no reference. Without a renderer Lathe refuses a conversation of
        which not all earlier turns are beginnings of the text."""
        if "learnt_tokens" not in got:
            if None not in want:
                self.wrong("no mask", row, want, got)
            return
        mine = [0] * len(got["ids"])
        for begin, end in got["learnt_tokens"]:
            mine[begin:end] = [1] * (end - begin)
        if any(w is not None and w != m for w, m in zip(want, mine)):
            self.wrong("learnt", row, want, mine)
        self.counts["learnt"] += sum(mine)
        self.counts["masks"] += 1

    def masks_of_marked(self, done):
        """TRL's masks of whole conversations and turns, where the template marks what is learnt."""
        for key, (row, want, got) in done.items():
            if want and not row["add_generation_prompt"]:
                want.learnt = (self.family.marked if want.served else self.family.mask)(row)
        ours = [x for x in done.values() if x[1] and x[1].learnt and any(x[1].learnt) and not x[1].named]
        for (row, want, got), (ids, mask) in zip(ours, labels(self.family, [x[0] for x in ours], True), strict=True):
            assert ids == want.ids
            if want.learnt != list(map(int, mask)):
                self.wrong("TRL's mask is not that of our rule", row, mask, want.learnt)
            self.counts["by TRL"] += 1
            want.by_trl = True

    def answer(self, row, prompt, turn):
        """Sets turn.begin, the token where the last answer begins, and turn.sure, from which token on it is sure."""
        turn.begin = turn.sure = common_prefix_length(prompt.ids, turn.ids)
        turn.follows = turn.begin == len(prompt.ids)
        if turn.follows:
            return
        if not turn.served:
            turn.begin = None
            return
        if "tool_calls" in row["messages"][-1]:
            self.call(turn)
            return
        text = self.family.private(turn.text).rstrip()
        end = self.family.private(self.family.tokens["eos_token"])
        body = (text[:-len(end)] if text.endswith(end) else text).rstrip()
        content = (self.family.private(row["messages"][-1]).get("content") or "").strip()
        if not body.endswith(content):  # the template leaves out the thinking
            content = content.split("</think>")[-1].strip()
        assert body.endswith(content), (body, content)
        at = len(body) - len(content) if content else len(text) - len(end)
        before = len(self.family.public(text[:at].rstrip()))
        at = len(self.family.public(text[:at]))
        offsets = self.family.by_parts(self.family.text(self.family.private(row), False))[1]
        turn.sure = next(i for i, (b, e) in enumerate(offsets) if e > at)
        turn.begin = min(turn.sure, next(i for i, (b, e) in enumerate(offsets) if e > before))

    def call(self, turn):
        """The same of an answer with calls, where the prompt has something before it that the turn has not."""
        after, begin = {"mistral_v3": (False, "[TOOL_CALLS]"), "qwen3": (True, "<|im_start|>assistant\n")}.get(self.renderer, (None, ""))
        if not begin:  # the prompt's end differs alone
            return
        text = self.family.text(self.family.private(turn.row), False)
        at = len(self.family.public(text[:text.rindex(begin) + after * len(begin)]))
        turn.begin = turn.sure = next(i for i, (b, e) in enumerate(self.family.by_parts(text)[1]) if e > at)

    def masks_of_completions(self, done):
        """TRL's masks of each answer as a completion; of a whole conversation, where the turns are beginnings of it."""
        asked = []
        for (n, what), (row, want, got) in done.items():
            prompt = done[n, ("prompt", what[1])][1] if what[0] == "turn" else None
            if not prompt or not want or (prompt.served != want.served and self.family.private(row) != row):
                continue
            self.answer(row, prompt, want)
            if want.begin is None:
                continue
            self.counts["cut"] += not want.follows
            if want.follows and not want.named and not prompt.named:
                asked.append((row, want))
        rows = [dict({"prompt": row["messages"][:-1], "completion": row["messages"][-1:]},
                     **{k: row[k] for k in ("tools", "chat_template_kwargs") if k in row}) for row, _ in asked]
        for (row, want), (ids, mask) in zip(asked, labels(self.family, rows, False), strict=True):
            assert ids == want.ids, row
            if mask != [i >= want.begin for i in range(len(ids))]:
                self.wrong("TRL's mask is not that of our rule", row, mask, want.begin)
            self.counts["by TRL"] += 1
            want.by_trl = True
        self.join_turns(done)

    def join_turns(self, done):
        """Puts the masks of the answers together. Where the text of an earlier turn is no beginning of this one (a template
        that writes earlier turns otherwise), only the other answers have a reference."""
        for (n, what), (row, want, got) in done.items():
            if row["add_generation_prompt"] or not want:
                continue
            answers = [i for i, message in enumerate(row["messages"]) if message["role"] == "assistant"]
            turns = [done[n, ("turn", i)][1] for i in answers]
            if not all(turn and turn.begin is not None and turn.served == want.served for turn in turns):
                continue
            begins = [turn for turn in turns if want.ids[:len(turn.ids)] == turn.ids]
            want.learnt = [0 if len(begins) == len(turns) else None] * len(want.ids)
            for turn in begins:
                want.learnt[turn.begin:len(turn.ids)] = [None] * (turn.sure - turn.begin) + [1] * (len(turn.ids) - turn.sure)

    def extension(self, done):
        """Whether the prompts and turns of each conversation are beginnings of the next ones."""
        chains = collections.defaultdict(list)
        for (n, what), (_, want, got) in done.items():
            if what != "prompted":
                order = (1, 0, 0) if what == "whole" else (0, what[1], what[0] == "turn")
                chains[n].append((order, got["ids"] if want and got["renderer"] != "jinja" else None))
        for chain in chains.values():
            texts = [ids for _, ids in sorted(chain)]
            if all(texts):
                self.counts["chains"] += 1
                self.counts["extend"] += all(b[:len(a)] == a for a, b in zip(texts, texts[1:]))

    def chunk(self, folder, seeds):
        rows = [(n, what, row) for n, talk in conversations(self.family, seeds) for what, row in requests(talk)]
        done = {}
        for (n, what, row), got in zip(rows, self.lathe(folder, [x[2] for x in rows]), strict=True):
            want = self.compare_ids(row, got)
            done[n, what] = row, want, got
            if what == "whole":
                self.counts["both refuse" if want is None else got["renderer"]] += 1
                self.counts["conversations"] += 1
                self.counts["calls"] += any("tool_calls" in m for m in row["messages"]) and want is not None and want.served
        (self.masks_of_marked if self.family.marks else self.masks_of_completions)(done)
        for row, want, got in done.values():
            if want and want.learnt is not None:
                self.compare_learnt(row, want.learnt, got)
        self.counts["talks by TRL"] += len({n for (n, _), (_, want, _) in done.items() if want and want.by_trl and want.served})
        self.counts["talks cut"] += len({n for (n, _), (_, want, _) in done.items() if want and want.begin is not None and not want.follows})
        self.extension(done)

    def run(self, folder):
        for first in range(0, MOST, CHUNK):
            self.chunk(folder, range(first, first + CHUNK))
            c = self.counts  # DeepSeek's templates that end a prompt with <think> have cut prompts alone
            if min(c[self.renderer], c["talks by TRL"] or c["talks cut"]) >= CONVERSATIONS and c["calls"] >= self.calls:
                return
        self.wrong("too few conversations are compared", CONVERSATIONS, "", dict(self.counts))


def check_family(command, renderer, template, family, show):
    """(differences, whether turns always extend each other)"""
    check = Check(command, renderer, template, family, show)
    with tempfile.TemporaryDirectory() as folder:
        family.write(folder)
        told = json.loads(ct.output(command, folder, "--json"))
        if told["renderer"] != renderer:
            check.wrong("detection", template, renderer, told["renderer"])
        check.run(folder)
    c = check.counts
    extends = c["chains"] == c["extend"]
    if told["renderer_extends"] and not extends:
        check.wrong("the renderer says that turns extend each other", template, extends, told["renderer_extends"])
    print("%-10s %-40s %3d conversations (%d by the renderer, %d of them with calls, %d by the template, %d refused by both), %d tokens, %d learnt; "
          "masks of %d texts, %d by TRL (%d conversations of the renderer), %d cut; turns extend in %d of %d: %s" % (
              renderer, template[:40], c["conversations"], c[renderer], c["calls"], c["jinja"], c["both refuse"], c["tokens"], c["learnt"],
              c["masks"], c["by TRL"], c["talks by TRL"], c["cut"], c["extend"], c["chains"],
              "%d DIFFERENCES" % c["differences"] if c["differences"] else "equal"), flush=True)
    return c["differences"], extends, told["renderer_extends"]


def check_model(command, folder):
    """Differences between Lathe's ids and those of transformers with the tokenizer of a real model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = [token.content for token in tokenizer.added_tokens_decoder.values()]
    texts = [text for text in ct.TEXTS if not any(name in text for name in names)]
    rows = [row for seed in range(2 * CONVERSATIONS) if (talk := ct.conversation(seed, texts))["messages"]
            for _, row in requests(talk)]
    counts = collections.Counter()
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as data:
        data.write("".join(json.dumps(row) + "\n" for row in rows))
        data.flush()
        for row, got in zip(rows, ct.lathe(command, folder, data.name, "auto", "--tokens"), strict=True):
            try:
                want = rt.ids_of(tokenizer, row, row["add_generation_prompt"])
            except Exception:  # what templates raise
                want = None
            counts["refused by both" if want is None and "error" in got else
                   "equal (%s)" % got["renderer"] if want is not None and got.get("ids") == want else "DIFFERENT"] += 1
    print("%s, ids of %d texts: %s" % (folder, len(rows), ", ".join("%s %d" % kv for kv in counts.items())))
    return counts["DIFFERENT"]


def main():
    command, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    show = int(sys.argv[sys.argv.index("--show") + 1]) if "--show" in sys.argv else 0
    ctu.datetime = ct.Clock
    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)  # TRL warns of each cut prompt
    differences = n = 0
    extending, flags = {}, {}
    for renderer, name, _, specials in rt.FAMILIES:
        if only not in name + " " + renderer:
            continue
        n += 1
        template = (folder / (name + ".jinja")).read_text(encoding="utf-8")
        wrong, extends, flags[renderer] = check_family(command, renderer, name, rt.Family(template, specials), show)
        extending[renderer] = extending.get(renderer, True) and extends
        differences += wrong
    for renderer in sorted(extending):
        if not only and extending[renderer] != flags[renderer]:
            print("%s: turns extend each other %s, and its flag is %s" % (renderer, extending[renderer], flags[renderer]))
            differences += 1
    if "--model" in sys.argv:
        differences += check_model(command, sys.argv[sys.argv.index("--model") + 1])
    print("%d templates, %d differences" % (n, differences))
    return 1 if differences or not n else 0


if __name__ == "__main__":
    sys.exit(main())
