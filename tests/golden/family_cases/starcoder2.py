"""Configurations of StarCoder2; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "starcoder2"
GOLDEN = {"starcoder2": (41, dict(TINY, hidden_size=32)),
          "starcoder2_window": (52, dict(TINY, hidden_size=32, num_hidden_layers=1, use_bias=False, sliding_window=6))}
SIX = {
    "grouped, biases, tied": dict(TINY, hidden_size=32),
    "one key head, no biases, untied, a window of 5": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                                                           use_bias=False, tie_word_embeddings=False, sliding_window=5),
    "as many key heads, head size 10, a window of 1, linear": dict(TINY, num_key_value_heads=4, head_dim=10, sliding_window=1,
                                                                   rope_parameters=LINEAR),
    "three layers, llama3, gelu, large epsilon": dict(TINY, num_hidden_layers=3, hidden_act="gelu", norm_epsilon=0.1,
                                                      rope_parameters=LLAMA3),
    "no biases, yarn beside, silu": dict(TINY, num_key_value_heads=4, use_bias=False, hidden_act="silu", rope_scaling=YARN,
                                         rope_theta=500.0),
    "one layer, dynamic, relu2, a window of 40": dict(TINY, num_hidden_layers=1, hidden_act="relu2", sliding_window=40,
                                                      rope_parameters=DYNAMIC),
}
SWEEP = {"starcoder2": dict(SWEPT, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True, norm_epsilon=1e-5,
                            use_bias=True, sliding_window=16, attention_dropout=0.0, residual_dropout=0.0, embedding_dropout=0.0)}
OTHER = {"norm_epsilon": [1e-3, 0.1], "use_bias": [False], "residual_dropout": [0.1, None], "embedding_dropout": [0.1],
         "hidden_act": ["silu"]}
