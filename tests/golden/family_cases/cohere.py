"""Configurations of Command R; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "cohere"
GOLDEN = {"cohere": (33, dict(TINY, hidden_size=32, logit_scale=0.3))}
SIX = {
    "grouped, tied": dict(TINY, hidden_size=32),
    "one key head, biases, untied, logits above 1": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                         attention_bias=True, tie_word_embeddings=False, logit_scale=1.7),
    "as many key heads, head size 10, linear": dict(TINY, head_dim=10, num_key_value_heads=4, logit_scale=1.0, rope_parameters=LINEAR),
    "three layers, large epsilon, llama3, gelu": dict(TINY, num_hidden_layers=3, layer_norm_eps=0.1, hidden_act="gelu",
                                                      rope_parameters=LLAMA3),
    "biases, yarn beside": dict(TINY, num_key_value_heads=4, logit_scale=0.5, rope_scaling=YARN, rope_theta=500.0, attention_bias=True),
    "one layer, untied, dynamic, relu2": dict(TINY, hidden_act="relu2", logit_scale=0.9, rope_parameters=DYNAMIC,
                                              tie_word_embeddings=False, num_hidden_layers=1),
}
SWEEP = {"cohere": dict(SWEPT, tie_word_embeddings=True, attention_bias=False, attention_dropout=0.0, layer_norm_eps=1e-5,
                        logit_scale=0.5, use_qk_norm=False)}
OTHER = {"logit_scale": [1, 0.0625]}
