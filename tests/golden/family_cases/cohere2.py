"""Configurations of Command R7B and Command A; see family_cases/__init__.py."""
from family_cases import FULL, LINEAR, LLAMA3, SLIDING, SWEPT, TINY, YARN

TYPE = "cohere2"
GOLDEN = {"cohere2": (34, dict(TINY, hidden_size=32, num_hidden_layers=3, logit_scale=0.25, sliding_window=6,
                              layer_types=[SLIDING, FULL, SLIDING]))}
SIX = {
    "every fourth layer without window and positions": dict(TINY, hidden_size=32, num_hidden_layers=5, sliding_window=5),
    "one key head, biases, untied, a window of 1": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                        attention_bias=True, tie_word_embeddings=False, logit_scale=1.7,
                                                        sliding_window=1),
    "as many key heads, layer_types, linear": dict(TINY, num_hidden_layers=3, num_key_value_heads=4, logit_scale=1.0,
                                                   layer_types=[FULL, SLIDING, SLIDING], sliding_window=9, rope_parameters=LINEAR),
    "every second layer, large epsilon, llama3, gelu": dict(TINY, num_hidden_layers=4, sliding_window_pattern=2, sliding_window=7,
                                                            layer_norm_eps=0.1, hidden_act="gelu", rope_parameters=LLAMA3),
    "no layer with positions, biases": dict(TINY, num_key_value_heads=4, layer_types=[FULL, FULL], logit_scale=0.5, attention_bias=True),
    "all layers with a window, untied, yarn, relu2": dict(TINY, hidden_act="relu2", logit_scale=0.9, layer_types=[SLIDING, SLIDING],
                                                          sliding_window=50, rope_parameters=YARN, tie_word_embeddings=False),
}
SWEEP = {"cohere2": dict(SWEPT, tie_word_embeddings=True, attention_bias=False, attention_dropout=0.0, layer_norm_eps=1e-5,
                         logit_scale=0.5, sliding_window=16, layer_types=[FULL, SLIDING, FULL])}
OTHER = {"logit_scale": [1, 0.0625], "sliding_window_pattern": [1, 2, 3]}
