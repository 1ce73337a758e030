"""Configurations of EXAONE 4; see family_cases/__init__.py."""
from family_cases import DEFAULT, DYNAMIC, FULL, LINEAR, LLAMA3, SLIDING, SWEPT, TINY, YARN

TYPE = "exaone4"
GOLDEN = {"exaone4": (44, dict(TINY, hidden_size=32, num_hidden_layers=3, sliding_window=6, layer_types=[SLIDING, FULL, SLIDING],
                              rope_parameters=DEFAULT)),
          "exaone4_global": (51, dict(TINY, hidden_size=32, sliding_window=None, layer_types=[FULL, FULL], rope_parameters=LLAMA3))}
SIX = {
    "every fourth layer without a window": dict(TINY, hidden_size=32, num_hidden_layers=5, sliding_window=5),
    "no layer with a window, all rotated, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                      tie_word_embeddings=True, sliding_window=None, layer_types=[FULL, FULL],
                                                      rope_theta=500.0),
    "as many key heads, a text as pattern, linear": dict(TINY, num_key_value_heads=4, sliding_window=1, sliding_window_pattern="LG",
                                                         layer_types=[SLIDING, FULL], rope_parameters=LINEAR),
    "every second layer without a window, llama3, gelu": dict(TINY, num_hidden_layers=3, sliding_window=7, sliding_window_pattern=2,
                                                              hidden_act="gelu", rope_parameters=LLAMA3),
    "head size 10, all layers with a window, yarn beside": dict(TINY, head_dim=10, layer_types=[SLIDING, SLIDING], sliding_window=40,
                                                               rms_norm_eps=0.1, rope_scaling=YARN),
    "no layer is rotated, dynamic, relu": dict(TINY, sliding_window=9, layer_types=[FULL, FULL], hidden_act="relu",
                                               rope_parameters=DYNAMIC),
}
SWEEP = {"exaone4": dict(SWEPT, attention_dropout=0.0, rms_norm_eps=1e-6, sliding_window=16, sliding_window_pattern=2,
                         layer_types=[FULL, SLIDING, FULL])}
OTHER = {"sliding_window_pattern": ["LLLG"]}
