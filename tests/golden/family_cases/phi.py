"""Configurations of Phi-1, Phi-1.5 and Phi-2; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "phi"
GOLDEN = {"phi": (45, dict(TINY, hidden_size=32, partial_rotary_factor=0.5))}
SIX = {
    "grouped, half of each head rotated": dict(TINY, hidden_size=32),
    "one key head, norms of queries and keys, tied": dict(TINY, hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
                                                          qk_layernorm=True, tie_word_embeddings=True, partial_rotary_factor=0.5),
    "as many key heads, head size 10, all rotated, linear": dict(TINY, num_key_value_heads=4, head_dim=10,
                                                                 rope_parameters=dict(LINEAR, partial_rotary_factor=1.0)),
    "three layers, llama3, gelu, large epsilon": dict(TINY, hidden_size=32, num_hidden_layers=3, hidden_act="gelu", layer_norm_eps=0.1,
                                                      rope_parameters=dict(LLAMA3, partial_rotary_factor=0.25)),
    "norms of queries and keys, yarn beside, relu2": dict(TINY, hidden_size=32, qk_layernorm=True, hidden_act="relu2", rope_scaling=YARN,
                                                          partial_rotary_factor=0.75),
    "one layer, dynamic, silu": dict(TINY, num_hidden_layers=1, hidden_act="silu", num_key_value_heads=4, head_dim=8,
                                     rope_parameters=dict(DYNAMIC, partial_rotary_factor=0.5)),
}
SWEEP = {"phi": dict(SWEPT, hidden_act="gelu_new", attention_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0, layer_norm_eps=1e-5,
                     qk_layernorm=True, partial_rotary_factor=0.5)}
OTHER = {"qk_layernorm": [False], "resid_pdrop": [0.1]}
