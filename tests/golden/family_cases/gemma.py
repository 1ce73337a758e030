"""Configurations of Gemma 1; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "gemma"
GOLDEN = {"gemma": (37, dict(TINY, head_dim=8, num_key_value_heads=1))}
SIX = {
    "head size 12": dict(TINY, head_dim=12),
    "one key head, head size 10, biases, untied, gelu of early files": dict(
        TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=10, attention_bias=True, tie_word_embeddings=False,
        hidden_act="gelu"),
    "as many key heads, linear, silu": dict(TINY, num_key_value_heads=4, head_dim=16, rope_parameters=LINEAR, hidden_act="silu"),
    "three layers, llama3, large epsilon": dict(TINY, num_hidden_layers=3, head_dim=8, rope_parameters=LLAMA3, rms_norm_eps=0.1),
    "yarn beside, relu": dict(TINY, head_dim=8, hidden_act="relu", rope_scaling=YARN, rope_theta=500.0),
    "one layer, biases, untied, dynamic": dict(TINY, head_dim=6, attention_bias=True, rope_parameters=DYNAMIC, num_hidden_layers=1,
                                               tie_word_embeddings=False),
}
SWEEP = {"gemma": dict(SWEPT, head_dim=8, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
                       hidden_act="gelu_pytorch_tanh", use_bidirectional_attention=None)}
OTHER = {}
