"""Configurations of SmolLM3; see family_cases/__init__.py."""
from family_cases import DYNAMIC, FULL, LLAMA3, SLIDING, SWEPT, TINY, YARN, longrope

TYPE = "smollm3"
GOLDEN = {"smollm3": (31, dict(TINY, hidden_size=32, num_hidden_layers=4, tie_word_embeddings=True))}
SIX = {
    "every fourth layer without positions": dict(TINY, num_hidden_layers=5),
    "one key head, biases everywhere, untied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                    no_rope_layers=[0, 1], attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "as many key heads, head size 10, every second layer, llama3": dict(TINY, head_dim=10, num_key_value_heads=4,
                                                                       no_rope_layer_interval=2, rope_parameters=LLAMA3),
    "windows where there are no positions, yarn": dict(TINY, num_hidden_layers=3, no_rope_layers=[1, 0, 0], use_sliding_window=True,
                                                       sliding_window=5, rope_parameters=YARN),
    "windows by layer_types, a longer list, dynamic, gelu": dict(
        TINY, num_hidden_layers=3, no_rope_layers=[0, 1, 1, 0], use_sliding_window=True, sliding_window=3,
        layer_types=[FULL, SLIDING, FULL], hidden_act="gelu", rope_scaling=DYNAMIC),
    "longrope, MLP biases, large epsilon, tanh": dict(TINY, num_key_value_heads=4, no_rope_layers=[1, 1], mlp_bias=True,
                                                      rms_norm_eps=0.01, hidden_act="tanh", rope_parameters=longrope(6)),
}
SWEEP = {"smollm3": dict(SWEPT, attention_bias=False, mlp_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6,
                         no_rope_layers=[1, 0, 1], no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None)}
OTHER = {"no_rope_layers": [[0, 0, 0], [1, 1, 1], [0, 1], [1, 0, 0, 1], []], "no_rope_layer_interval": [1, 2, 3]}
