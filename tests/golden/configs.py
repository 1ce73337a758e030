"""Goldens of reading config.json: odd but legal configurations as transformers' classes resolve them.

    python tests/golden/configs.py         writes data/configs.json

Each entry has the configuration and what transformers makes of it: sizes, and the rotary frequencies of its
model. Made with transformers 5.23.0.
"""

import json
import pathlib
import tempfile
import warnings

from transformers import AutoConfig, AutoModelForCausalLM

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data" / "configs.json"
LLAMA = dict(model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
QWEN2, QWEN3 = {**LLAMA, "model_type": "qwen2"}, {**LLAMA, "model_type": "qwen3", "head_dim": 8}
GPT2 = dict(model_type="gpt2", vocab_size=64, bos_token_id=1, eos_token_id=1)
NEOX = dict(model_type="gpt_neox", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=128)
PHI3 = {**LLAMA, "model_type": "phi3", "pad_token_id": None}
FACTORS = dict(short_factor=[1.0, 1.5], long_factor=[2.0, 3.0])
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
DEFAULT = dict(rope_type="default", rope_theta=5000.0)
LINEAR = dict(rope_type="linear", factor=3.0, rope_theta=5000.0)

CASES = {
    "rope_scaling before rope_parameters of type default":
        {**LLAMA, "rope_parameters": DEFAULT, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "rope_scaling before rope_parameters, theta beside both":
        {**LLAMA, "rope_theta": 700.0, "rope_parameters": LINEAR, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "rope_scaling null": {**LLAMA, "rope_parameters": LINEAR, "rope_scaling": None},
    "rope_scaling empty": {**LLAMA, "rope_parameters": LINEAR, "rope_scaling": {}},
    "rope_scaling an empty list": {**LLAMA, "rope_parameters": LINEAR, "rope_scaling": []},
    "theta within before theta beside": {**LLAMA, "rope_theta": 700.0, "rope_parameters": DEFAULT},
    "theta beside": {**LLAMA, "rope_theta": 700.0, "rope_parameters": {"rope_type": "default"}},
    "rope_type before type, default": {**LLAMA, "rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}},
    "rope_type before type, linear": {**LLAMA, "rope_scaling": {"type": "default", "rope_type": "linear", "factor": 2.0}},
    "factor without a type": {**LLAMA, "rope_scaling": {"factor": 2.0}},
    "llama3 without original positions": {**LLAMA, "rope_scaling": LLAMA3},
    "llama3 with original positions beside": {**LLAMA, "original_max_position_embeddings": 32, "rope_scaling": LLAMA3},
    "llama3 with original positions": {**LLAMA, "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}},
    "llama3 with original positions at both places":
        {**LLAMA, "original_max_position_embeddings": 32, "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}},
    "partial rotary with rope_type default": {**LLAMA, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}},
    "partial rotary beside": {**LLAMA, "partial_rotary_factor": 0.5},
    "dynamic": {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "yarn": {**LLAMA, "rope_parameters": YARN},
    "yarn, whole channels are not asked for": {**LLAMA, "rope_parameters": {**YARN, "truncate": False}},
    "yarn, other ends of the ramp": {**LLAMA, "rope_parameters": {**YARN, "beta_fast": 8, "beta_slow": 2.5}},
    "yarn, two scales": {**LLAMA, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4}},
    "yarn, scale of its own": {**LLAMA, "rope_parameters": {**YARN, "attention_factor": 1.5}},
    "phi3, half of a head": {**PHI3, "partial_rotary_factor": 0.5},
    "phi3, share within before share beside":
        {**PHI3, "partial_rotary_factor": 0.25, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}},
    "phi3, an older name of longrope": {**PHI3, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64,
                                        "rope_scaling":
                                        {"type": "su", "original_max_position_embeddings": 64, **FACTORS}},
    "gpt_neox, a quarter of each head": {**NEOX},
    "gpt_neox, older keys": {**NEOX, "rotary_pct": 0.5, "rotary_emb_base": 500.0},
    "gpt_neox, within before beside": {**NEOX, "rotary_pct": 0.5, "rotary_emb_base": 500.0, "rope_parameters":
                                       {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 1.0}},
    "gpt_neox, scaled": {**NEOX, "rotary_pct": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "gpt_neox, rope_theta beside is not read": {**NEOX, "rope_theta": 500.0},
    "gpt_neox, dynamic": {**NEOX, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "attention dropout": {**LLAMA, "attention_dropout": 0.1},
    "null key and value heads": {**LLAMA, "num_key_value_heads": None},
    "all layers full": {**LLAMA, "layer_types": ["full_attention", "full_attention"]},
    "qwen2, sliding window that is null": {**QWEN2, "use_sliding_window": True, "sliding_window": None},
    "qwen2, sliding window of later layers": {**QWEN2, "use_sliding_window": True, "sliding_window": 16},
    "qwen2, all layers full": {**QWEN2, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0,
                               "layer_types": ["full_attention", "full_attention"]},
    "qwen2, window that is not used": {**QWEN2, "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 0},
    "qwen3, sliding window that is null": {**QWEN3, "use_sliding_window": True, "sliding_window": None},
    "qwen3, head size of its own": {k: v for k, v in QWEN3.items() if k != "head_dim"},
    "gpt2, names of the attribute map": {**GPT2, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
                                         "max_position_embeddings": 64},
    "gpt2, both names": {**GPT2, "n_embd": 48, "hidden_size": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt2, both names, the map's first": {"hidden_size": 32, **GPT2, "n_embd": 48, "n_layer": 2, "n_head": 4,
                                          "n_positions": 64},
    "gpt2, intermediate_size is not n_inner": {**GPT2, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                                               "intermediate_size": 10},
}


def resolve(config):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        c = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(c)
    shapes = {k: list(v.shape) for k, v in model.state_dict().items()}
    out = dict(width=c.hidden_size, n_layers=c.num_hidden_layers, n_heads=c.num_attention_heads,
               positions=c.max_position_embeddings)
    if config["model_type"] == "gpt2":
        out["ffn"] = shapes["transformer.h.0.mlp.c_fc.weight"][1]
        return out
    out["ffn"] = c.intermediate_size
    out["n_kv_heads"] = getattr(c, "num_key_value_heads", c.num_attention_heads)
    size = [v[0] for k, v in shapes.items() if k.endswith("layers.0.self_attn.k_proj.weight")]
    out["head_dim"] = size[0] // c.num_key_value_heads if size else c.hidden_size // c.num_attention_heads
    out["inv_freq"] = [float(x) for x in model.base_model.rotary_emb.inv_freq]
    out["attention_factor"] = float(model.base_model.rotary_emb.attention_scaling)
    return out


def main():
    cases = [dict(name=name, config=config, **resolve(config)) for name, config in CASES.items()]
    DATA.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{DATA}: {len(cases)} configurations")


if __name__ == "__main__":
    main()
