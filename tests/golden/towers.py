"""Models of several towers whose text model Lathe trains: goldens, odd configurations, and the whole way of one.

    python tests/golden/towers.py models [NAME ...]   folders in data/models, as models.py writes them: config.json,
                                                      weights and golden.safetensors of the text model alone (no image);
                                                      then families.py adds the greedy text and the LoRA of PEFT
    python tests/golden/towers.py sweep LATHE [NAME]  six odd configurations of each wrapper: 24 tokens that Lathe
                                                      continues greedily, and their log-probabilities, against transformers
    python tests/golden/towers.py whole LATHE         a Gemma 3 with a random vision tower: fine-tuned with LoRA and merged,
                                                      trained as a whole, and quantized, by Lathe; each folder loads as
                                                      AutoModelForImageTextToText, its other tensors are byte for byte those
                                                      of the first folder, and its logits of a text are those of Lathe
    python tests/golden/towers.py keys                data/towers.json: the keys of each wrapper's configuration, and
                                                      the defaults of the classes of their text models

Random weights, fp32, eager attention on the CPU. Made with torch 2.15.0, transformers 5.24.0, safetensors 0.8.0, peft 0.21.2.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

import families

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).parent
OUT = HERE / "data" / "models"
B, T = 2, 23

SMALL = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
LLAMA, MISTRAL = dict(SMALL, model_type="llama"), dict(SMALL, model_type="mistral", head_dim=8)
QWEN2, QWEN3 = dict(SMALL, model_type="qwen2"), dict(SMALL, model_type="qwen3", head_dim=8)
PHI3 = dict(SMALL, model_type="phi3", pad_token_id=None)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
SIGLIP = dict(VISION, model_type="siglip_vision_model")
CLIP = dict(VISION, model_type="clip_vision_model", projection_dim=8)
PIXTRAL = dict(VISION, model_type="pixtral", head_dim=4)
INTERN = dict(VISION, model_type="internvl_vision", image_size=[16, 16], patch_size=[8, 8])
QWEN_VISION = dict(depth=1, hidden_size=24, embed_dim=8, intermediate_size=8, num_heads=2, out_hidden_size=24, patch_size=4,
                   window_size=16, fullatt_block_indexes=[0], mlp_ratio=1)
QWEN3_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=24, patch_size=4,
                    num_position_embeddings=16, deepstack_visual_indexes=[0])
QWEN3_5 = dict(SMALL, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2, linear_num_value_heads=4,
               layer_types=["linear_attention", "full_attention"])
QWEN3_5_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=24, patch_size=4,
                      num_position_embeddings=16)
QWEN3_5_MOE = dict({k: v for k, v in QWEN3_5.items() if k != "intermediate_size"}, moe_intermediate_size=12, num_experts=5,
                   shared_expert_intermediate_size=20, num_experts_per_tok=2)
MROPE = dict(rope_type="default", rope_theta=500.0, mrope_section=[1, 1, 1])
IDS = dict(image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63)
LOCAL = dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
             full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=4.0))
GEMMA = dict(SMALL, head_dim=8, num_hidden_layers=3, sliding_window=6, query_pre_attn_scalar=12, pad_token_id=None,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters=LOCAL)

# wrapper: (vision_config, keys beside it, {golden folder or odd configuration: (text_config, outer keys, save_pretrained)})
WRAPPERS = {
    "gemma3": (SIGLIP, dict(mm_tokens_per_image=4, image_token_index=63), {
        "as Gemma 3": (GEMMA, {}), "untied": (GEMMA, dict(tie_word_embeddings=False)),
        "text says untied, wrapper tied": (dict(GEMMA, tie_word_embeddings=False), {}),
        "caps that change nothing": (dict(GEMMA, final_logit_softcapping=3.0), {}),
        "all layers with a window, biases": (dict(GEMMA, layer_types=["sliding_attention"] * 3, attention_bias=True), {}),
        "pattern of layers, one shard per 20 KB": (dict(GEMMA, layer_types=None, num_hidden_layers=7), {}, "20KB")}),
    "mistral3": (PIXTRAL, dict(image_token_index=10, spatial_merge_size=2), {
        "as Mistral Small": (dict(MISTRAL, sliding_window=None), dict(tie_word_embeddings=False)),
        "tied": (MISTRAL, {}), "window": (dict(MISTRAL, sliding_window=5), dict(tie_word_embeddings=False)),
        "Ministral": (dict(MISTRAL, model_type="ministral", sliding_window=5, layer_types=["full_attention", "sliding_attention"]),
                      dict(tie_word_embeddings=False)),
        "text model Qwen2": (QWEN2, {}),
        "yarn": (dict(MISTRAL, rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0,
                                                    original_max_position_embeddings=16)), {})}),
    "qwen2_vl": (QWEN_VISION, IDS, {
        "as Qwen2-VL": (dict(SMALL, rope_parameters=MROPE), {}), "tied": (dict(SMALL, rope_parameters=MROPE), dict(tie_word_embeddings=True)),
        "tied by the text model": (dict(SMALL, rope_parameters=MROPE, tie_word_embeddings=True), {}),
        "window": (dict(SMALL, rope_parameters=MROPE, use_sliding_window=True, sliding_window=5, max_window_layers=1), {}),
        "rms_norm_eps": (dict(SMALL, rope_parameters=MROPE, rms_norm_eps=0.1), {}),
        "base of the rotation by default": (dict(SMALL, num_key_value_heads=4, rope_parameters=dict(mrope_section=[1, 1, 1])), {})}),
    "qwen2_5_vl": (dict(QWEN_VISION, hidden_size=8), IDS, {
        "as Qwen2.5-VL": (dict(SMALL, rope_parameters=MROPE), {}),
        "mrope by its old name": (dict(SMALL, rope_scaling=dict(type="mrope", mrope_section=[1, 1, 1])), dict(tie_word_embeddings=True)),
        "yarn": (dict(SMALL, rope_parameters=dict(MROPE, rope_type="yarn", factor=4.0, original_max_position_embeddings=16)), {}),
        "linear": (dict(SMALL, rope_parameters=dict(MROPE, rope_type="linear", factor=2.0)), {}),
        "all layers with a window": (dict(SMALL, rope_parameters=MROPE, use_sliding_window=True, sliding_window=4,
                                          max_window_layers=0), {}),
        "one key and value head, shards": (dict(SMALL, rope_parameters=MROPE, num_key_value_heads=1), {}, "20KB")}),
    "qwen3_vl": (QWEN3_VISION, IDS, {
        "as Qwen3-VL": (dict(SMALL, head_dim=8, rope_parameters=dict(MROPE, mrope_section=[2, 1, 1], mrope_interleaved=True)), {}),
        "tied": (dict(SMALL, head_dim=8, rope_parameters=MROPE), dict(tie_word_embeddings=True)),
        "biases": (dict(SMALL, head_dim=8, attention_bias=True), {}),
        "text says tied, wrapper does not": (dict(SMALL, head_dim=8, tie_word_embeddings=True), {}),
        "head size of its own": (dict(SMALL, head_dim=16, rope_parameters=MROPE), {}),
        "rope_theta beside": (dict(SMALL, head_dim=8, rope_theta=77.0), {})}),
    "qwen3_5": (QWEN3_5_VISION, IDS, {
        "as Qwen3.5": (dict(QWEN3_5, rope_parameters=dict(MROPE, mrope_section=[1, 1, 0], mrope_interleaved=True,
                                                          partial_rotary_factor=0.25)), {}),
        "tied": (QWEN3_5, dict(tie_word_embeddings=True)), "linear layers alone": (dict(QWEN3_5, layer_types=["linear_attention"] * 2), {}),
        "text says tied, wrapper does not": (dict(QWEN3_5, tie_word_embeddings=True), {}),
        "every second layer attends": (dict(QWEN3_5, layer_types=None, full_attention_interval=2, num_hidden_layers=4), {}, "20KB"),
        "biases, one head of keys": (dict(QWEN3_5, attention_bias=True, linear_num_key_heads=1), {})}),
    "qwen3_5_moe": (QWEN3_5_VISION, IDS, {
        "as Qwen3.5-MoE": (dict(QWEN3_5_MOE, rope_parameters=dict(MROPE, mrope_section=[1, 1, 0], mrope_interleaved=True,
                                                                  partial_rotary_factor=0.25)), {}),
        "tied": (QWEN3_5_MOE, dict(tie_word_embeddings=True)),
        "text says tied, wrapper does not": (dict(QWEN3_5_MOE, tie_word_embeddings=True), {}),
        "all of seven experts, linear layers alone": (dict(QWEN3_5_MOE, layer_types=["linear_attention"] * 2, num_experts=7,
                                                           num_experts_per_tok=7), {}),
        "every second layer attends": (dict(QWEN3_5_MOE, layer_types=None, full_attention_interval=2, num_hidden_layers=4), {}, "20KB"),
        "biases, one head of keys": (dict(QWEN3_5_MOE, attention_bias=True, linear_num_key_heads=1), {})}),
    "llava": (CLIP, dict(image_token_index=60), {
        "Llama": (LLAMA, {}), "Mistral": (dict(MISTRAL, sliding_window=5), {}), "Qwen2, tied by the text model":
        (dict(QWEN2, tie_word_embeddings=True), {}), "Qwen3": (QWEN3, {}), "Phi-3": (dict(PHI3, hidden_size=32), {}),
        "Gemma 2, which caps no logits there": (dict(GEMMA, model_type="gemma2", layer_types=None, rope_parameters=None,
                                                     attn_logit_softcapping=2.0, final_logit_softcapping=3.0), {})}),
    "llava_next": (CLIP, dict(image_token_index=60), {
        "Mistral": (dict(MISTRAL, sliding_window=None), {}), "Llama with biases": (dict(LLAMA, attention_bias=True, mlp_bias=True), {}),
        "tied": (LLAMA, dict(tie_word_embeddings=True)), "Qwen2": (QWEN2, {}), "OLMo 2": (dict(SMALL, model_type="olmo2", pad_token_id=None), {}),
        "llama3 positions": (dict(LLAMA, rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                                              high_freq_factor=4.0, original_max_position_embeddings=16)), {})}),
    "llava_next_video": (CLIP, dict(image_token_index=60), {"Llama": (LLAMA, {}), "tied by the text model":
                                                           (dict(LLAMA, tie_word_embeddings=True), {})}),
    "llava_onevision": (SIGLIP, dict(image_token_index=60), {"Qwen2": (QWEN2, {}), "tied by the text model":
                                                            (dict(QWEN2, tie_word_embeddings=True), {})}),
    "vipllava": (CLIP, dict(image_token_index=60, vision_feature_layers=[-1, -1]), {"Llama": (LLAMA, {})}),
    "video_llava": (CLIP, dict(image_token_index=60), {"Llama": (LLAMA, {})}),
    "idefics2": (VISION, dict(image_token_id=60), {"Mistral": (dict(MISTRAL, sliding_window=None), {})}),
    "idefics3": (VISION, dict(image_token_id=60), {"Llama": (LLAMA, {}), "tied": (LLAMA, dict(tie_word_embeddings=True))}),
    "smolvlm": (VISION, dict(image_token_id=60), {
        "Llama": (LLAMA, {}), "tied": (LLAMA, dict(tie_word_embeddings=True)), "text says tied, wrapper does not":
        (dict(LLAMA, tie_word_embeddings=True), {}), "Mistral": (dict(MISTRAL, sliding_window=5), {}), "one key and value head":
        (dict(LLAMA, num_key_value_heads=1), {}), "linear": (dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=500.0,
                                                                                              factor=2.0)), {})}),
    "internvl": (INTERN, dict(image_token_id=60), {"Qwen2": (QWEN2, {}), "Qwen3, untied": (QWEN3, dict(tie_word_embeddings=False)),
                                                  "Llama": (LLAMA, {})}),
    "lighton_ocr": (PIXTRAL, dict(image_token_id=60), {"Qwen3": (QWEN3, {})}),
}
GOLDENS = {"tower_gemma3": "gemma3", "tower_mistral3": "mistral3", "tower_qwen2_5_vl": "qwen2_5_vl",
           "tower_qwen3_vl": "qwen3_vl", "tower_llava_next": "llava_next", "tower_smolvlm": "smolvlm"}


def randomize(model, seed):
    """Weights large enough that every term of the forward shows in the logits."""
    g = torch.Generator().manual_seed(seed)
    kind = model.config.get_text_config().model_type
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                base = 1.0 if "norm" in name and not kind.startswith("gemma") else 0.0
                p.copy_(base + 0.1 * r)
            else:
                p.copy_(r * (0.5 if "embed" in name else 0.15))


def made(wrapper, case, seed=1):
    """(model, arguments of save_pretrained) of one configuration."""
    vision, beside, cases = WRAPPERS[wrapper]
    text, outer, *shards = cases[case]
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[wrapper](text_config=dict(text), vision_config=dict(vision), **{**beside, **outer})
    config._attn_implementation = "eager"
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float()
    randomize(model, seed)
    return model, dict(max_shard_size=shards[0]) if shards else {}


def save(model, folder, **arguments):
    model.save_pretrained(folder, **arguments)
    (folder / "generation_config.json").unlink(missing_ok=True)


def load(folder):
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def golden(folder, seed):
    model = load(folder)
    g = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(0, 60, (B, T), generator=g)
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    lp = torch.log_softmax(out.logits.detach()[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    logprobs = torch.zeros(B, T)
    logprobs[:, :-1] = lp
    tensors = {"input_ids": ids.to(torch.int32), "logits": out.logits.detach().contiguous(), "logprobs": logprobs,
               "loss": out.loss.detach().reshape(1)}
    tensors.update({"grad." + n: p.grad.contiguous() for n, p in model.named_parameters() if p.grad is not None})
    save_file(tensors, folder / "golden.safetensors", metadata={"format": "pt"})
    print(folder.name, "loss", out.loss.item(), len(tensors) - 4, "gradients")


def models(names):
    for seed, (name, wrapper) in enumerate(GOLDENS.items(), 40):
        if names and name not in names:
            continue
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model, _ = made(wrapper, next(iter(WRAPPERS[wrapper][2])), seed)
        save(model, folder)
        golden(folder, seed)
        families.text(folder, families.load(folder))
        families.lora(folder, families.load(folder), 100 + sum(map(ord, name)))
        for file in folder.iterdir():
            file.chmod(0o644)


# ---- odd configurations ----

PROMPTS = [[1, 5, 9, 20, 33, 7, 41, 3], [8], [60, 60, 4, 11]]  # 60 is the token of an image in most of them


def by_lathe(lathe, folder):
    (folder / "in.jsonl").write_text("".join(json.dumps({"ids": p}) + "\n" for p in PROMPTS))
    command = [lathe, "generate", str(folder), "--prompts", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"),
               "--logprobs", "--temperature", "0", "--max-new-tokens", "24", "--ignore-eos", "--train.precision", "fp32",
               "--train.threads", "1", "--tokenizer.path", "bytes"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [(r["ids"], r["logprobs"]) for r in rows]


def by_transformers(folder):
    model, out = load(folder), []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(24):
                ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
            logits = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0], -1)
        new = ids[0, len(prompt):].tolist()
        out.append((new, [logits[len(prompt) - 1 + i, t].item() for i, t in enumerate(new)]))
    return out


def sweep(lathe, names):
    worst, n = 0.0, 0
    for wrapper in names or WRAPPERS:
        for case in WRAPPERS[wrapper][2]:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                model, arguments = made(wrapper, case, 7)
                save(model, folder, **arguments)
                want, got = by_transformers(folder), by_lathe(lathe, folder)
                off = max(abs(a - b) for (_, x), (_, y) in zip(want, got) for a, b in zip(x, y))
                same = [x for x, _ in want] == [x for x, _ in got]
                print(f"{wrapper:18} {case:44} {off:.1e} {'' if same else 'OTHER TEXT'}")
                assert same and off < 2e-5, (wrapper, case)
                worst, n = max(worst, off), n + 1
    print(n, "configurations, largest difference of a log-probability", worst)


# ---- the whole way ----

def run(lathe, *arguments, cwd):
    done = subprocess.run([lathe, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return done.stdout + done.stderr


def tensors_of(folder):
    """{name: (dtype, shape, bytes)} of all files."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                t = file.get_tensor(name)
                out[name] = (t.dtype, tuple(t.shape), t.contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return out


def check_whole(lathe, base, folder, what, changes=True):
    before, after = tensors_of(base), tensors_of(folder)
    others = {n for n in before if not n.startswith(("language_model.", "model.language_model.", "lm_head."))}
    assert others and all(after.get(n) == before[n] for n in others), (what, "another tower has changed")
    assert not changes or any(after.get(n) != before[n] for n in before if n not in others), (what, "nothing has trained")
    for name in ("preprocessor_config.json", "processor_config.json", "chat_template.jinja"):
        assert (folder / name).read_text() == (base / name).read_text(), (what, name)
    model, report = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], (what, report)
    want, got = by_transformers(folder), by_lathe(lathe, folder)
    off = max(abs(a - b) for (_, x), (_, y) in zip(want, got) for a, b in zip(x, y))
    assert [x for x, _ in want] == [x for x, _ in got] and off < 2e-5, (what, off)
    print(f"{what:44} {len(others)} tensors of other towers carried, log-probabilities within {off:.1e}")


def whole(lathe):
    from peft import PeftModel
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        base = root / "base"
        model, _ = made("gemma3", "as Gemma 3", 3)
        # the other towers in bfloat16, as files of mixed dtypes have them
        model.model.vision_tower.to(torch.bfloat16)
        save(model, base, max_shard_size="30KB")
        for name in ("preprocessor_config.json", "processor_config.json"):
            (base / name).write_text(json.dumps({"processor_class": "Gemma3Processor", "of": name}))
        (base / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
        shutil.copy(HERE / "data" / "tokenizer" / "tiny_64.json", base / "tokenizer.json")
        (base / "tokenizer_config.json").write_text(json.dumps({"eos_token": families.tokenizer(64).decode([2])}))
        (root / "text.txt").write_text("the tool stays where it is, and a chip curls away from it. " * 40)
        (root / "run.toml").write_text(f"""
[model]
path = "{base}"
[data]
datasets = [{{ path = "text.txt" }}]
seq_len = 16
[train]
max_steps = 4
precision = "fp32"
threads = 1
[optimizer]
lr = 0.01
[checkpoint]
every = 2
""")
        common = ["train", root / "run.toml", "--checkpoint.dir"]
        run(lathe, *common, root / "lora", "--adapter.name", "lora", cwd=root)
        adapter = sorted((root / "lora").glob("step-*"))[-1]
        run(lathe, "merge", adapter, "-o", root / "merged", cwd=root)
        check_whole(lathe, base, root / "merged", "LoRA, merged")
        theirs = PeftModel.from_pretrained(load(base), adapter).eval()
        wrapped = [n for n, _ in theirs.named_parameters() if "lora_" in n]
        assert wrapped and all(".language_model." in n for n in wrapped), "PEFT wraps another tower, too"
        ids = torch.tensor([PROMPTS[0]])
        with torch.no_grad():
            off = (theirs(input_ids=ids).logits - load(root / "merged")(input_ids=ids).logits).abs().max().item()
        assert off < 2e-5, off
        print(f"PEFT reads the adapter: logits within {off:.1e} of the merged model")
        run(lathe, *common, root / "full", cwd=root)
        check_whole(lathe, base, sorted((root / "full").glob("step-*"))[-1], "full training")
        run(lathe, "quantize", base, "--quant.name", "rtn", "--quant.bits", "8", "--quant.group_size", "8", "-o", root / "rtn", cwd=root)
        check_whole(lathe, base, root / "rtn", "quantized", changes=False)


# ---- keys ----

def keys():
    import transformers
    common = set(transformers.PreTrainedConfig().to_dict())
    outer = {w: sorted(set(CONFIG_MAPPING[w]().to_dict()) | common) for w in WRAPPERS}
    kinds = ["llama", "mistral", "ministral", "qwen2", "qwen3", "olmo2", "phi3", "gemma2", "gemma3_text", "qwen2_vl_text",
             "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_5_text", "qwen3_5_moe_text"]
    inner = {k: {key: v for key, v in CONFIG_MAPPING[k]().to_dict().items() if key != "transformers_version"} for k in kinds}
    tied = {w: CONFIG_MAPPING[w]().tie_word_embeddings for w in WRAPPERS}
    (HERE / "data" / "towers.json").write_text(json.dumps(dict(outer=outer, inner=inner, tied=tied), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    command, *rest = sys.argv[1:]
    if command == "models":
        models(rest)
    elif command == "sweep":
        sweep(str(pathlib.Path(rest[0]).resolve()), rest[1:])
    elif command == "whole":
        whole(str(pathlib.Path(rest[0]).resolve()))
    elif command == "keys":
        keys()
    else:
        raise SystemExit(__doc__)
