#!/usr/bin/env python3
"""Edits each key of config.json of each family, and compares what Lathe computes with transformers.

    /path/to/python tests/golden/config_sweep.py LATHE [FAMILY ...]     prints what differs
    /path/to/python tests/golden/config_sweep.py LATHE [FAMILY ...] --golden    also writes what these have in data/config_edits/

A tiny model of each family is saved. Each edit leaves a key out, makes it null, or gives it another value; rotary settings come in
the old and the new form. transformers (AutoModelForCausalLM in fp32, eager attention) and `lathe generate --logprobs` read the same
folder, and the log-probability of the most likely next token after three prompts is compared. An edit has one of four results:
both agree; they differ (the script exits with 1); Lathe refuses what transformers reads; transformers refuses.
data/config_edits/ has the weights of each family, in bf16, and for test_config_edits one or two edits for each result that the numbers
took; keys.json has the keys that each family's configuration has in transformers, and those of each quantization_config.
"""
import concurrent.futures
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
from family_cases import attention_of
from family_cases import families as family_cases
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity(50)
logging.disable_progress_bar()
torch.set_num_threads(1)
DATA = pathlib.Path(__file__).parent / "data" / "config_edits"
ABSENT = object()
# With the other number, two experts are chosen with scores that are equal but for rounding, which differs between processors.
SEEDS = {"granitemoehybrid": 5}
PROMPTS = [[(i * 37 + 11) % 61 + 3 for i in range(n)] for n in (5, 40, 90)]
SHAPE = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
             initializer_range=0.3, tie_word_embeddings=False, attention_dropout=0.0, rms_norm_eps=1e-6)
HEAD = dict(SHAPE, head_dim=8)
TYPES = ["full_attention", "sliding_attention", "full_attention"]
FAMILIES = {
    "llama": dict(HEAD, hidden_act="silu", attention_bias=False, mlp_bias=False, rope_theta=10000.0, rope_scaling=None),
    "mistral": dict(HEAD, hidden_act="silu", sliding_window=16, rope_theta=10000.0, rope_scaling=None),
    "ministral": dict(HEAD, hidden_act="silu", sliding_window=16, layer_types=TYPES, rope_theta=10000.0, rope_scaling=None),
    "qwen2": dict(SHAPE, hidden_act="silu", use_sliding_window=True, sliding_window=16, max_window_layers=1, rope_theta=10000.0,
                  rope_scaling=None),
    "qwen3": dict(HEAD, hidden_act="silu", use_sliding_window=True, sliding_window=16, max_window_layers=1, attention_bias=False,
                  rope_theta=10000.0, rope_scaling=None),
    "gemma2": dict(HEAD, hidden_activation="gelu_pytorch_tanh", sliding_window=16, query_pre_attn_scalar=16,
                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=False, rope_theta=10000.0,
                   tie_word_embeddings=True),
    "gemma3_text": dict(HEAD, hidden_activation="gelu_pytorch_tanh", sliding_window=16, query_pre_attn_scalar=16,
                        attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=False, rope_theta=1000.0,
                        rope_local_base_freq=100.0, sliding_window_pattern=2, tie_word_embeddings=True),
    "phi3": dict(SHAPE, hidden_act="silu", sliding_window=None, original_max_position_embeddings=32, embd_pdrop=0.0,
                 resid_pdrop=0.0, partial_rotary_factor=0.5, rope_theta=10000.0, rope_scaling=None),
    "olmo2": dict(SHAPE, hidden_act="silu", attention_bias=False, rope_theta=10000.0, rope_scaling=None),
    "gpt2": dict(vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=128, n_ctx=128, n_inner=48, bos_token_id=1,
                 eos_token_id=2, initializer_range=0.3, layer_norm_epsilon=1e-5, activation_function="gelu_new",
                 scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False,
                 add_cross_attention=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True,
                 summary_type="cls_index", summary_use_proj=True, summary_activation=None, summary_first_dropout=0.1,
                 summary_proj_to_labels=True),
    "gpt_neox": dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
                     max_position_embeddings=128, bos_token_id=1, eos_token_id=2, initializer_range=0.3, layer_norm_eps=1e-5,
                     hidden_act="gelu", use_parallel_residual=True, attention_bias=True, rotary_pct=0.25, rotary_emb_base=10000,
                     attention_dropout=0.0, hidden_dropout=0.0, classifier_dropout=0.1, tie_word_embeddings=False),
}
LATER = set()  # families of which one edit for each result is enough, so that the test stays short
for module in family_cases().values():
    FAMILIES.update(module.SWEEP)
    LATER |= set(module.SWEEP)
# Values that any key of that name or type may have in files of other programs.
OTHER = {
    "rope_theta": [500.0, 1000000, 10000], "rotary_emb_base": [500, 500.5], "rope_local_base_freq": [50.0, 10000],
    "sliding_window": [None, 1, 3, 64, 1000, 128], "layer_types": [["full_attention"] * 3, ["sliding_attention"] * 3, TYPES,
                                                                   TYPES[:2], ["chunked_attention"] * 3, []],
    "max_window_layers": [0, 2, 3, 28], "use_sliding_window": [False, True], "tie_word_embeddings": [True, False],
    "hidden_act": ["gelu", "gelu_new", "relu", "swish", "gelu_pytorch_tanh", "quick_gelu", "relu2", "tanh", "mish"],
    "activation_function": ["gelu", "relu", "silu", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "tanh", "mish"],
    "hidden_activation": ["gelu", "gelu_pytorch_tanh", "silu"], "head_dim": [8, 4, 16], "num_key_value_heads": [1, 4],
    "max_position_embeddings": [64, 32, 4096], "n_positions": [64, 256], "n_ctx": [64, 1024], "n_inner": [64, 128],
    "original_max_position_embeddings": [16, 64, 128, 4096], "partial_rotary_factor": [0.25, 1.0, 0.5, 1],
    "rotary_pct": [0.5, 1.0, 1], "rms_norm_eps": [1e-5, 0.1, 1e-12], "layer_norm_eps": [1e-3, 1e-12],
    "layer_norm_epsilon": [1e-3, 0.1], "attention_bias": [True, False], "mlp_bias": [True, False],
    "attn_logit_softcapping": [None, 1.0, 50.0, 30], "final_logit_softcapping": [None, 1.0, 30.0, 30],
    "query_pre_attn_scalar": [4, 256, 16.0], "sliding_window_pattern": [1, 3, 6], "use_parallel_residual": [False, True],
    "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True],
    "use_bidirectional_attention": [True, False, None], "initializer_range": [0.02, 1.0], "use_cache": [False, True],
    "torch_dtype": ["float32", "bfloat16", "float16"], "dtype": ["float32", "bfloat16"], "pad_token_id": [5, -1, None],
    "bos_token_id": [5, -1, None], "eos_token_id": [[2, 3], 5, -1, None, []], "hidden_size": [64], "num_attention_heads": [8, 2],
    "num_hidden_layers": [2, 4], "intermediate_size": [32], "vocab_size": [65], "pretraining_tp": [1, 2], "n_head": [8], "n_embd": [64],
    "n_layer": [2], "attention_dropout": [0.1, 0], "embd_pdrop": [0.1], "resid_pdrop": [0.1], "attn_pdrop": [0.1],
    "hidden_dropout": [0.1], "add_cross_attention": [True], "architectures": [["Other"], None, []], "is_causal": [True],
    "transformers_version": ["4.30.0", "5.0.0"], "model_type": [], "rope_type": ["linear"], "logit_scale": [2.0],
    "logits_scaling": [2.0], "rope_interleaved": [True], "use_qk_norm": [True], "clip_qkv": [8.0], "parallel_attn": [True],
    "attention_multiplier": [0.5], "residual_multiplier": [0.5], "embedding_multiplier": [2.0], "scale_emb": [12],
    "chunk_size_feed_forward": [1], "output_attentions": [True], "use_return_dict": [True], "id2label": [{"0": "a", "1": "b"}],
    "num_experts": [4], "attention_window_size": [4], "qk_layernorm": [True], "gradient_checkpointing": [True],
}
for module in family_cases().values():
    for key, values in module.OTHER.items():
        OTHER[key] = OTHER.get(key, []) + [v for v in values if v not in OTHER.get(key, [])]
EXTRA = ["use_cache", "torch_dtype", "dtype", "pretraining_tp", "architectures", "is_causal", "transformers_version", "rope_type",
         "rope_interleaved", "use_qk_norm", "logit_scale", "logits_scaling", "clip_qkv", "partial_rotary_factor", "head_dim",
         "original_max_position_embeddings", "use_bidirectional_attention", "layer_types", "sliding_window", "attention_bias",
         "mlp_bias", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "hidden_activation", "rope_theta",
         "parallel_attn", "attention_multiplier", "residual_multiplier", "embedding_multiplier", "scale_emb", "num_experts",
         "chunk_size_feed_forward", "output_attentions", "use_return_dict", "id2label", "attention_window_size", "qk_layernorm",
         "gradient_checkpointing", "max_window_layers", "use_sliding_window", "rotary_pct", "attention_dropout"]
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0)


def rope_settings(family):
    """Rotary settings as files have them."""
    n = 2 if family == "phi3" else 4
    longrope = dict(short_factor=[1.0 + 0.5 * i for i in range(n)], long_factor=[2.0 + i for i in range(n)])
    yield from ({}, {"type": "default"}, {"rope_type": "default", "rope_theta": 300.0}, {"factor": 2.0},
                {"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 4, "rope_theta": 300.0},
                {"type": "linear", "rope_type": "default", "factor": 2.0}, {"rope_type": "linear"},
                {"rope_type": "dynamic", "factor": 2.0}, {"type": "dynamic", "factor": 4.0}, LLAMA3,
                {**LLAMA3, "original_max_position_embeddings": 16}, {**LLAMA3, "rope_theta": 300}, YARN,
                {**YARN, "original_max_position_embeddings": 32}, {**YARN, "attention_factor": 1.5},
                {**YARN, "attention_factor": None}, {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
                {**YARN, "mscale": 1.0, "mscale_all_dim": 0}, {**YARN, "mscale": 0.7, "mscale_all_dim": 0.0},
                {**YARN, "mscale": 0, "mscale_all_dim": 0.4}, {**YARN, "mscale": 0.7}, {**YARN, "mscale_all_dim": 1.0},
                {**YARN, "beta_fast": 8, "beta_slow": 2}, {**YARN, "truncate": False}, {**YARN, "factor": 1.0},
                {"rope_type": "yarn", "original_max_position_embeddings": 32}, {"rope_type": "longrope", **longrope},
                {"type": "longrope", **longrope, "original_max_position_embeddings": 32}, {"type": "su", **longrope},
                {"rope_type": "longrope", "factor": 2.0, **longrope}, {"rope_type": "longrope", "attention_factor": 1.2, **longrope},
                {"rope_type": "proportional", "factor": 2.0}, {"rope_type": "mrope", "mrope_section": [1, 1, 2]},
                {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_type": "linear", "factor": 2.0,
                                                                        "partial_rotary_factor": 0.5})


def edits(family, base):
    """(name, config) of every edit."""
    def changed(**keys):
        config = copy.deepcopy(base)
        for key, value in keys.items():
            config.pop(key, None)
            if value is not ABSENT:
                config[key] = value
        return config
    yield "as it is", changed()
    left_alone = {"model_type"} | set().union(*(getattr(m, "UNEDITED", []) for m in family_cases().values() if m.TYPE == family))
    for key in [k for k in [*base, *(k for k in EXTRA if k not in base)] if k not in left_alone]:
        if key in base:
            yield f"without {key}", changed(**{key: ABSENT})
        yield f"{key} null", changed(**{key: None})
        for value in OTHER.get(key, []):
            if value is not None and (key not in base or base[key] != value):
                yield f"{key} {json.dumps(value)}", changed(**{key: value})
    if family in ("gpt2", "bloom", "mpt"):
        return
    for settings in rope_settings(family):
        text = json.dumps(settings)
        yield f"rope_scaling {text}", changed(rope_scaling=settings)
        yield f"rope_parameters {text}", changed(rope_parameters=settings, rope_theta=ABSENT, rope_scaling=ABSENT)
        yield f"rope_parameters beside theta {text}", changed(rope_parameters=settings, rope_scaling=ABSENT)
        yield f"both {text}", changed(rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 77.0},
                                      rope_scaling=settings)
        yield f"without original {text}", changed(rope_scaling=settings, original_max_position_embeddings=ABSENT)
        if family == "gemma3_text":
            both = {"full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 77.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 33.0}}
            yield f"nested {text}", changed(rope_parameters={**both, "full_attention": settings}, rope_scaling=ABSENT)
            yield f"nested sliding {text}", changed(rope_parameters={**both, "sliding_attention": settings}, rope_scaling=ABSENT)
            yield f"nested beside {text}", changed(rope_parameters=both, rope_scaling=settings)
            yield f"one type {text}", changed(rope_parameters={"full_attention": settings}, rope_scaling=ABSENT)
            yield f"null type {text}", changed(rope_parameters={"full_attention": settings, "sliding_attention": None},
                                               rope_scaling=ABSENT)


def by_transformers(folder):
    """[(token, logprob)] per prompt, or the first line of the error."""
    try:
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32,
                                                     attn_implementation=attention_of(config.model_type)).eval()
        out = []
        with torch.no_grad():
            for ids in PROMPTS:
                logits = model(torch.tensor([ids])).logits[0, -1]
                token = int(logits.argmax())
                out.append((token, float(torch.log_softmax(logits, -1)[token])))
        return out
    except Exception as error:  # whatever a library raises for an odd file
        return f"{type(error).__name__}: {error}".strip().split("\n")[0]


def by_lathe(lathe, folder):
    out = pathlib.Path(folder) / "out.jsonl"
    command = [lathe, "generate", folder, "--prompts", str(pathlib.Path(folder) / "in.jsonl"), "-o", str(out), "--logprobs",
               "--temperature", "0", "--max-new-tokens", "1", "--ignore-eos", "--train.precision", "fp32", "--train.threads", "1",
               "--tokenizer.path", "bytes"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        return (done.stderr.strip() or "no words").split("\n")[-1].replace(str(folder), "DIR")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [(r["ids"][0], r["logprobs"][0]) for r in rows]


def agree(a, b):
    return all(x[0] == y[0] and abs(x[1] - y[1]) < 2e-4 for x, y in zip(a, b)) and len(a) == len(b)


def weights_of(family, base, folder):
    torch.manual_seed(SEEDS.get(family, 3))
    kind = {"model_type": family, **base}
    (folder / "config.json").write_text(json.dumps(kind))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
    model.to(torch.bfloat16).save_pretrained(folder)


def keys():
    """{family: keys of its configuration}, and {"quantization_config": {method: keys}}."""
    from compressed_tensors.quantization import QuantizationConfig
    from transformers import AwqConfig, BitsAndBytesConfig, EetqConfig, FineGrainedFP8Config, GPTQConfig, PreTrainedConfig
    common = set(PreTrainedConfig().to_dict())
    out = {f: sorted(set(AutoConfig.for_model(f).to_dict()) | common | set(FAMILIES[f])) for f in FAMILIES}
    quant = {"bitsandbytes": BitsAndBytesConfig(), "gptq": GPTQConfig(bits=4), "awq": AwqConfig(), "fp8": FineGrainedFP8Config(),
             "eetq": EetqConfig("int8"), "compressed-tensors": QuantizationConfig(config_groups={})}
    quant = {k: sorted(v.to_dict()) for k, v in quant.items()}
    quant["compressed-tensors"] += ["sparsity_config", "transform_config", "version"]
    # GPTQModel 7.7, BaseQuantizeConfig.to_dict and what its subclasses add; AutoGPTQ 0.7; ModelOpt 0.47, convert_hf_config.py
    quant["gptqmodel"] = ["bits", "dynamic", "group_size", "desc_act", "lm_head", "activation", "method", "quant_method", "format",
                          "checkpoint_format", "pack_dtype", "rotation", "meta", "sym", "adapter", "act_group_aware", "zero_point",
                          "version", "damp_percent", "static_groups", "true_sequential", "model_name_or_path",
                          "model_file_base_name", "is_marlin_format"]
    quant["modelopt"] = ["config_groups", "ignore", "quant_algo", "kv_cache_scheme", "producer", "quant_method", "quantized_layers",
                         "group_size", "kv_cache_quant_algo"]
    return {**out, "quantization_config": quant}


def main():
    lathe = str(pathlib.Path(sys.argv[1]).resolve())
    families = [a for a in sys.argv[2:] if not a.startswith("--")] or list(FAMILIES)
    counts, golden, differ, seen = {}, [], 0, {}
    if "--golden" in sys.argv:
        DATA.mkdir(exist_ok=True)
        (DATA / "keys.json").write_text(json.dumps(keys(), indent=1, sort_keys=True) + "\n")
    for family in families:
        base = {"model_type": family, **FAMILIES[family]}
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made)
            weights_of(family, FAMILIES[family], made)
            if "--golden" in sys.argv:
                shutil.copy(made / "model.safetensors", DATA / f"{family}.safetensors")
            jobs = []
            for i, (name, config) in enumerate(edits(family, base)):
                folder = made / f"edit{i}"
                folder.mkdir()
                os.link(made / "model.safetensors", folder / "model.safetensors")
                (folder / "config.json").write_text(json.dumps(config))
                (folder / "in.jsonl").write_text("".join(json.dumps({"ids": p}) + "\n" for p in PROMPTS))
                jobs.append((name, config, folder))
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                ours = [pool.submit(by_lathe, lathe, str(f)) for _, _, f in jobs]
                for (name, config, folder), one in zip(jobs, ours):
                    theirs, mine = by_transformers(folder), one.result()
                    result = ("transformers refuses" if isinstance(theirs, str) and isinstance(mine, str) else
                              "transformers alone refuses" if isinstance(theirs, str) else
                              "Lathe refuses" if isinstance(mine, str) else "agree" if agree(theirs, mine) else "DIFFER")
                    counts[result] = counts.get(result, 0) + 1
                    differ += result == "DIFFER"
                    if result in ("DIFFER", "Lathe refuses") or (result == "transformers alone refuses" and "--all" in sys.argv):
                        print(f"{result} {family}: {name}\n    transformers {theirs}\n    Lathe        {mine}", flush=True)
                    numbers = (family, str([round(x, 4) for _, x in theirs]) if not isinstance(theirs, str) else "")
                    seen[numbers] = seen.get(numbers, 0) + (result == "agree")
                    if result == "agree" and seen[numbers] <= (1 if family in LATER else 2) and "drop" not in name:  # a training refuses dropout
                        golden.append(dict(family=family, edit=name, config=config, tokens=[t for t, _ in theirs],
                                           logprobs=[round(x, 6) for _, x in theirs]))
                    shutil.rmtree(folder)
    print(counts)
    if "--golden" in sys.argv:
        old = json.loads((DATA / "edits.json").read_text()) if (DATA / "edits.json").exists() else []
        golden += [g for g in old if g["family"] not in families]
        golden.sort(key=lambda g: list(FAMILIES).index(g["family"]))  # stable: the edits of a family stay in their order
        (DATA / "edits.json").write_text("[\n" + ",\n".join(json.dumps(g) for g in golden) + "\n]\n")
        print(f"{DATA}: {len(golden)} edits")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
