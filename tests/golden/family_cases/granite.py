"""Configurations of Granite 3; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "granite"
FOUR = dict(embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0)
GOLDEN = {"granite": (32, dict(TINY, **FOUR, tie_word_embeddings=True))}
SIX = {
    "grouped": dict(TINY, **FOUR),
    "one key head, biases everywhere, tied, logits above 1": dict(
        TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, embedding_multiplier=3, attention_multiplier=0.05, residual_multiplier=1.5, logits_scaling=0.7),
    "as many key heads, head size 10, linear": dict(TINY, head_dim=10, num_key_value_heads=4, attention_multiplier=0.7,
                                                    logits_scaling=3.0, rope_parameters=LINEAR),
    "only the residual multiplier, biases, llama3, gelu": dict(TINY, num_hidden_layers=3, residual_multiplier=0.5, attention_bias=True,
                                                              hidden_act="gelu_new", rope_parameters=LLAMA3),
    "only the embedding multiplier, MLP biases, yarn": dict(TINY, num_key_value_heads=4, mlp_bias=True, embedding_multiplier=0.5,
                                                           rms_norm_eps=0.1, rope_scaling=YARN, rope_theta=500.0),
    "one layer, dynamic, relu": dict(TINY, **FOUR, hidden_act="relu", rope_parameters=DYNAMIC, num_hidden_layers=1),
}
SWEEP = {"granite": dict(SWEPT, head_dim=8, attention_bias=False, mlp_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6,
                         embedding_multiplier=2.0, attention_multiplier=0.3, residual_multiplier=0.5, logits_scaling=2.0)}
OTHER = {"embedding_multiplier": [1, 12.5], "attention_multiplier": [1, 0.1], "residual_multiplier": [1, 0.22],
         "logits_scaling": [1, 0.5, 8]}
