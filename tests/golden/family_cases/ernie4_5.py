"""Configurations of ERNIE 4.5, dense; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "ernie4_5"
GOLDEN = {"ernie4_5": (40, dict(TINY, head_dim=8))}
SIX = {
    "head size 12": dict(TINY, head_dim=12),
    "one key head, biases, untied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=None,
                                         use_bias=True, tie_word_embeddings=False),
    "as many key heads, head size 16, biases, linear": dict(TINY, num_key_value_heads=4, head_dim=16, use_bias=True,
                                                            rope_parameters=LINEAR),
    "three layers, llama3, gelu": dict(TINY, num_hidden_layers=3, head_dim=8, hidden_act="gelu", rope_parameters=LLAMA3),
    "large epsilon, yarn beside": dict(TINY, num_key_value_heads=1, head_dim=8, rms_norm_eps=0.1, rope_scaling=YARN, rope_theta=500.0),
    "one layer, untied, dynamic, relu2": dict(TINY, head_dim=8, hidden_act="relu2", rope_parameters=DYNAMIC, num_hidden_layers=1,
                                              tie_word_embeddings=False),
}
SWEEP = {"ernie4_5": dict(SWEPT, head_dim=8, tie_word_embeddings=True, rms_norm_eps=1e-6, use_bias=False)}
OTHER = {"use_bias": [True]}
