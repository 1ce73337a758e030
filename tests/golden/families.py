"""Greedy text and LoRA of the tiny models of models.py, from transformers and PEFT.

    python tests/golden/families.py [NAME ...]      all models, or those named; after models.py

data/tokenizer/tiny_V.json      a byte-level BPE of V tokens for lower-case text, for models of that vocabulary
data/models/<name>/text.json    prompt, its ids, the 20 tokens that transformers' generate adds (greedy), the text of both
                                together, and the log-probability of each token
data/lora/<name>/               for the first model of each model_type: a PEFT adapter of rank 2 on all linear layers but
                                the head, as save_pretrained writes it, with random A and B, and golden.safetensors of
                                the batch of models.py:
  logits    f32 [B,T,V]         with the adapter
  loss      f64 [1]
  grad.KEY  f32                 gradient of every A and B, by its key in the adapter's file

fp32, eager attention, one thread. The likeliest token leads the next one by at least 2e-3 in each step, so that rounding
does not decide the text. Made with torch 2.15.0, transformers 5.23.0, tokenizers 0.23.3, peft 0.21.2.
"""
import json
import pathlib
import re
import sys
import warnings

import torch
from family_cases import attention_of
from peft import LoraConfig, get_peft_model
from peft.tuners import tuners_utils
from peft.utils import transformers_weight_conversion
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedTokenizerFast

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data"
NEW = 20
PROMPTS = ["the tool stays where it is", "a chip curls away", "one stops, and grinds it", "it sings, then it tears",
           "nobody forgets the sound", "numbers are for threads", "the shaft", "so",
           "thin and blue, and the surface is bright", "put it back"]


def tokenizer(vocab):
    path = DATA / "tokenizer" / f"tiny_{vocab}.json"
    if not path.exists():
        text = re.sub(r"[^a-z ,.\n]", "", (DATA / "tokenizer" / "corpus.txt").read_text().lower())
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=vocab, show_progress=False))
        assert t.get_vocab_size() == vocab
        t.save(str(path))
        path.chmod(0o644)
    return PreTrainedTokenizerFast(tokenizer_file=str(path))


def is_wrapper(folder):
    """Whether the model has other towers than the text model, as towers.py makes them."""
    return "vision_config" in json.loads((folder / "config.json").read_text())


def load(folder):
    kind = AutoModelForImageTextToText if is_wrapper(folder) else AutoModelForCausalLM
    attention = attention_of(json.loads((folder / "config.json").read_text())["model_type"])
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def continued(model, ids):
    """The new tokens, their log-probabilities, and the least lead of a token over the next likeliest."""
    ids = torch.tensor([ids])  # without a mask, generate would take every pad_token_id for padding
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, use_cache=True,
                         return_dict_in_generate=True, output_logits=True)
    new = out.sequences[0, ids.shape[1]:].tolist()
    logits = torch.cat(out.logits)
    two = logits.topk(2).values
    logprobs = torch.log_softmax(logits, -1)[torch.arange(NEW), torch.tensor(new)]
    return new, logprobs.tolist(), (two[:, 0] - two[:, 1]).min().item()


def text(folder, model):
    t = tokenizer(model.config.get_text_config().vocab_size)
    found = []
    for prompt in PROMPTS:
        ids = t(prompt).input_ids
        new, logprobs, lead = continued(model, ids)
        if lead > 2e-3:
            found.append((len(set(new)), prompt, ids, new, logprobs, lead))
    _, prompt, ids, new, logprobs, lead = max(found)  # the least monotonous text
    whole = t.decode(ids + new, clean_up_tokenization_spaces=False)
    golden = dict(prompt=prompt, ids=ids, tokens=new, text=whole, logprobs=[round(x, 7) for x in logprobs])
    (folder / "text.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(folder.name, repr(whole), "lead", round(lead, 4))


def file_key(name):
    return name.replace(".default.", ".")


def linear_layers(model):
    """An expression for the linear layers of a model with experts, without routers: PEFT's all-linear also takes routers and the
    fused experts, with twice the rank, and it shortens a list of many names to their ends, which experts have, too."""
    names = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and ".layers." in n and not n.endswith(".wg")]
    kinds = sorted({re.sub(r".*\.layers\.\d+\.", "", n) for n in names})
    return r"model\.layers\.\d+\.(" + "|".join(re.escape(k) for k in kinds) + ")"


# PEFT replaces the names of an MLP or a shared expert by the fused experts, whatever else the list has.
transformers_weight_conversion.convert_peft_config_for_transformers = lambda *_, **__: None
# PEFT refuses out_proj of Falcon-H1, because the kernels of mamba_ssm multiply by it themselves. Here none is installed.
tuners_utils._check_lora_target_modules_mamba = lambda *_, **__: None


def lora(folder, model, seed):
    ids = load_file(folder / "golden.safetensors")["input_ids"].long()
    targets = linear_layers(model) if hasattr(model.config, "num_experts_per_tok") else "all-linear"
    if is_wrapper(folder):
        targets = r"model\.(language|text)_model\.layers\..*_proj"
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=3, target_modules=targets, task_type="CAUSAL_LM"))
    g = torch.Generator().manual_seed(seed)
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for _, p in trained:
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
    model.peft_config["default"].base_model_name_or_path = folder.name
    to = DATA / "lora" / folder.name
    model.save_pretrained(to)
    (to / "README.md").unlink(missing_ok=True)
    model.eval()
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    golden = {"grad." + file_key(n): p.grad for n, p in trained}
    golden.update(logits=out.logits.detach(), loss=out.loss.detach().double().reshape(1))
    save_file({k: v.contiguous() for k, v in golden.items()}, to / "golden.safetensors", metadata={"format": "pt"})
    for file in to.iterdir():
        file.chmod(0o644)
    print(folder.name, "lora loss", out.loss.item(), len(trained), "tensors")


# With these numbers, fp32 gradients differ from those in fp64 by less than 3e-6; with others of a layer with a decaying state
# it may be ten times as much, and another processor rounds otherwise.
SEEDS = {"qwen3_5": 4}


def main():
    torch.set_num_threads(1)
    names = sys.argv[1:] or sorted(p.parent.name for p in (DATA / "models").glob("*/golden.safetensors"))
    seen = set()
    for name in names:
        folder = DATA / "models" / name
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        text(folder, load(folder))
        if kind not in seen:
            lora(folder, load(folder), SEEDS.get(name, 100 + sum(map(ord, name))))
        seen.add(kind)
        (folder / "text.json").chmod(0o644)


if __name__ == "__main__":
    main()
