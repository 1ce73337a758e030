"""Configurations of Hunyuan, dense; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "hunyuan_v1_dense"
ALPHA = dict(DYNAMIC, alpha=50.0)
GOLDEN = {"hunyuan": (39, dict(TINY, head_dim=8, tie_word_embeddings=True, rope_parameters=ALPHA))}
SIX = {
    "alpha as in published files": dict(TINY, head_dim=12, rope_scaling=dict(type="dynamic", alpha=1000.0, factor=1.0, beta_fast=32,
                                                                            beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    "one key head, head size 10, biases, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=10,
                                                     attention_bias=True, tie_word_embeddings=True),
    "as many key heads, head size 16, linear": dict(TINY, num_key_value_heads=4, head_dim=16, rope_parameters=LINEAR),
    "three layers, llama3, gelu": dict(TINY, num_hidden_layers=3, head_dim=8, hidden_act="gelu", rope_parameters=LLAMA3),
    "large epsilon, yarn beside": dict(TINY, num_key_value_heads=4, head_dim=8, rms_norm_eps=0.1, rope_scaling=YARN),
    "one layer, biases, dynamic without alpha, relu": dict(TINY, head_dim=6, hidden_act="relu", rope_parameters=DYNAMIC,
                                                           num_hidden_layers=1, attention_bias=True),
}
SWEEP = {"hunyuan_v1_dense": dict(SWEPT, head_dim=8, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6)}
OTHER = {"rope_scaling": [dict(type="dynamic", alpha=a, factor=1.0) for a in (1000.0, 3, 0, None)]}
