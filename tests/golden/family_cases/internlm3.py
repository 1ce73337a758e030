"""Configurations of InternLM3; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "internlm3"
GOLDEN = {"internlm3": (41, dict(TINY, head_dim=8, rope_parameters=DYNAMIC))}
SIX = {
    "head size 12": dict(TINY, head_dim=12),
    "one key head, biases, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=None,
                                       attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "as many key heads, the keys of published files, linear": dict(TINY, num_key_value_heads=4, head_dim=16, qkv_bias=True, bias=True,
                                                                   rope_parameters=LINEAR),
    "three layers, llama3, gelu": dict(TINY, num_hidden_layers=3, head_dim=8, hidden_act="gelu", rope_parameters=LLAMA3),
    "large epsilon, yarn beside": dict(TINY, num_key_value_heads=1, head_dim=8, rms_norm_eps=0.1, rope_scaling=YARN, rope_theta=500.0),
    "one layer, dynamic of published files, relu2": dict(TINY, head_dim=8, hidden_act="relu2", num_hidden_layers=1,
                                                         rope_scaling=dict(rope_type="dynamic", factor=6.0)),
}
SWEEP = {"internlm3": dict(SWEPT, head_dim=8, qkv_bias=False, bias=False, attention_dropout=0.0, rms_norm_eps=1e-6)}
OTHER = {"qkv_bias": [True], "bias": [True]}
