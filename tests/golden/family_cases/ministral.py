"""Configurations of Ministral, which plugin mistral serves; see family_cases/__init__.py."""
from family_cases import DYNAMIC, FULL, LINEAR, LLAMA3, SLIDING, TINY, YARN

TYPE = "ministral"
GOLDEN = {"ministral": (42, dict(TINY, head_dim=8, num_hidden_layers=3, sliding_window=6, layer_types=[SLIDING, FULL, SLIDING]))}
SIX = {
    "all layers with a window": dict(TINY, num_hidden_layers=3, head_dim=12, sliding_window=5),
    "one key head, head size 10, tied, a window of 1": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                            head_dim=10, tie_word_embeddings=True, sliding_window=1,
                                                            layer_types=[FULL, SLIDING]),
    "as many key heads, a window of all positions, linear": dict(TINY, num_key_value_heads=4, head_dim=16, sliding_window=64,
                                                                rope_parameters=LINEAR),
    "layer_types, llama3": dict(TINY, num_hidden_layers=4, head_dim=8, layer_types=[FULL, SLIDING, SLIDING, FULL], sliding_window=9,
                                rope_parameters=LLAMA3),
    "no layer with a window, yarn beside": dict(TINY, num_key_value_heads=1, head_dim=8, rms_norm_eps=0.1, layer_types=[FULL, FULL],
                                                rope_scaling=YARN, rope_theta=500.0),
    "a window of 50, dynamic": dict(TINY, head_dim=8, rope_parameters=DYNAMIC, layer_types=[SLIDING, SLIDING], sliding_window=50),
}
SWEEP = {}
OTHER = {}
