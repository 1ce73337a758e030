"""Configurations of Seed-OSS; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "seed_oss"
NO_DROPOUT = dict(attention_dropout=0.0, residual_dropout=0.0)
GOLDEN = {"seed_oss": (38, dict(TINY, head_dim=8, **NO_DROPOUT))}
SIX = {
    "head size 12": dict(TINY, head_dim=12, **NO_DROPOUT),
    "one key head, the other biases, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=None,
                                                 attention_bias=False, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                 **NO_DROPOUT),
    "as many key heads, head size 16, linear": dict(TINY, num_key_value_heads=4, head_dim=16, attention_out_bias=True,
                                                    rope_parameters=LINEAR, **NO_DROPOUT),
    "three layers, the dropout of the class, llama3, gelu": dict(TINY, num_hidden_layers=3, head_dim=8, hidden_act="gelu",
                                                                rope_parameters=LLAMA3),
    "MLP biases, large epsilon, yarn beside": dict(TINY, num_key_value_heads=1, head_dim=8, mlp_bias=True, rms_norm_eps=0.1,
                                                   rope_scaling=YARN, **NO_DROPOUT),
    "one layer, no biases, dynamic, relu2": dict(TINY, head_dim=8, hidden_act="relu2", rope_parameters=DYNAMIC, num_hidden_layers=1,
                                                 attention_bias=False, **NO_DROPOUT),
}
SWEEP = {"seed_oss": dict(SWEPT, head_dim=8, attention_bias=True, attention_out_bias=False, mlp_bias=False, rms_norm_eps=1e-6,
                          **NO_DROPOUT)}
OTHER = {"attention_out_bias": [True], "residual_dropout": [0.1, 0]}
