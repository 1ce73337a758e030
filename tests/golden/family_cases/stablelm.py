"""Configurations of StableLM; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "stablelm"
GOLDEN = {"stablelm": (42, dict(TINY, hidden_size=32, use_qkv_bias=True)),
          "stablelm_heads": (43, dict(TINY, hidden_size=32, num_attention_heads=4, qk_layernorm=True, use_parallel_residual=True,
                                      partial_rotary_factor=0.5))}
SIX = {
    "grouped, head size 8, a quarter rotated": dict(TINY, hidden_size=32),
    "one key head, norms by head, biases, tied": dict(TINY, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, use_qkv_bias=True,
                                                      qk_layernorm=True, tie_word_embeddings=True, partial_rotary_factor=0.5),
    "parallel, norms by head, as many key heads, linear": dict(TINY, num_key_value_heads=4, qk_layernorm=True, use_parallel_residual=True,
                                                               rope_parameters=dict(LINEAR, partial_rotary_factor=1.0)),
    "parallel, biases, three layers, llama3, gelu": dict(TINY, hidden_size=32, num_hidden_layers=3, use_parallel_residual=True,
                                                         use_qkv_bias=True, hidden_act="gelu",
                                                         rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5)),
    "norms by head, large epsilon, yarn beside": dict(TINY, hidden_size=32, qk_layernorm=True, layer_norm_eps=0.1, rope_scaling=YARN,
                                                      partial_rotary_factor=0.75),
    "one layer, parallel, twelve heads, dynamic, relu": dict(TINY, hidden_size=48, num_attention_heads=12, num_key_value_heads=12,
                                                             num_hidden_layers=1, use_parallel_residual=True, qk_layernorm=True,
                                                             hidden_act="relu", rope_parameters=dict(DYNAMIC, partial_rotary_factor=1.0)),
}
SWEEP = {"stablelm": dict(SWEPT, attention_dropout=0.0, hidden_dropout=0.0, layer_norm_eps=1e-5, use_qkv_bias=True, qk_layernorm=True,
                          use_parallel_residual=False, partial_rotary_factor=0.5)}
OTHER = {"use_qkv_bias": [False], "qk_layernorm": [False], "use_parallel_residual": [True]}
