"""Configurations of OLMo 3; see family_cases/__init__.py."""
from family_cases import DEFAULT, DYNAMIC, FULL, LINEAR, LLAMA3, SLIDING, SWEPT, TINY, YARN, longrope

TYPE = "olmo3"
GOLDEN = {"olmo3": (30, dict(TINY, hidden_size=32, num_hidden_layers=3, sliding_window=6, layer_types=[SLIDING, FULL, SLIDING],
                            rope_parameters={SLIDING: DEFAULT, FULL: YARN}))}
SIX = {
    "every fourth layer without a window": dict(TINY, hidden_size=32, num_hidden_layers=5, sliding_window=5),
    "one key head, biases, tied, a window of 1": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                      attention_bias=True, tie_word_embeddings=True, sliding_window=1, rope_theta=500.0),
    "as many key heads, head size 4, llama3 and linear, gelu": dict(
        TINY, hidden_size=20, num_attention_heads=5, num_key_value_heads=5, layer_types=[FULL, SLIDING], sliding_window=7,
        rope_parameters={FULL: LLAMA3, SLIDING: LINEAR}, hidden_act="gelu"),
    "head size 10, all layers with a window, yarn beside": dict(TINY, head_dim=10, layer_types=[SLIDING, SLIDING], sliding_window=40,
                                                               rope_scaling=YARN),
    "no layer with a window, dynamic beside": dict(TINY, num_key_value_heads=1, layer_types=[FULL, FULL], rope_theta=77.0,
                                                   rope_scaling=DYNAMIC),
    "longrope, a window of 3, large epsilon, relu2": dict(TINY, hidden_size=32, num_hidden_layers=4, sliding_window=3, rms_norm_eps=0.1,
                                                         hidden_act="relu2", rope_parameters={FULL: longrope(8), SLIDING: DEFAULT}),
}
SWEEP = {"olmo3": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, sliding_window=16,
                       layer_types=[FULL, SLIDING, FULL])}
OTHER = {}
