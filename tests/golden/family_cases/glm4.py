"""Configurations of GLM-4-0414; see family_cases/__init__.py."""
from family_cases import DEFAULT, DYNAMIC, LLAMA3, SWEPT, TINY, YARN

TYPE = "glm4"
GOLDEN = {"glm4": (36, dict(TINY, head_dim=8, tie_word_embeddings=True))}
SIX = {
    "head size 12, half of it rotated": dict(TINY, head_dim=12),
    "one key head, head size 10, all of it rotated, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                                head_dim=10, attention_bias=False, tie_word_embeddings=True,
                                                                partial_rotary_factor=1.0),
    "as many key heads, a quarter rotated": dict(TINY, num_key_value_heads=4, head_dim=16,
                                                 rope_parameters=dict(DEFAULT, partial_rotary_factor=0.25)),
    "three layers, llama3, gelu": dict(TINY, num_hidden_layers=3, head_dim=8, hidden_act="gelu",
                                       rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5)),
    "three quarters rotated, yarn beside, large epsilon": dict(TINY, num_key_value_heads=1, head_dim=8, partial_rotary_factor=0.75,
                                                               rms_norm_eps=0.1, rope_scaling=YARN),
    "one layer, no biases, dynamic, relu6": dict(TINY, head_dim=8, hidden_act="relu6", attention_bias=False, num_hidden_layers=1,
                                                 rope_parameters=dict(DYNAMIC, partial_rotary_factor=0.5)),
}
SWEEP = {"glm4": dict(SWEPT, head_dim=8, attention_bias=True, attention_dropout=0.0, rms_norm_eps=1e-6, partial_rotary_factor=0.5)}
OTHER = {}
