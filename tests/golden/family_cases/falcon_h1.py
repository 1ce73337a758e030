"""Configurations of Falcon-H1; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "falcon_h1"
FACTORS = dict(lm_head_multiplier=0.3, embedding_multiplier=5.0, key_multiplier=0.4, attention_in_multiplier=0.9,
               attention_out_multiplier=0.6, ssm_in_multiplier=1.2, ssm_out_multiplier=0.7, ssm_multipliers=[0.35, 0.25, 0.5, 1.4, 0.6],
               mlp_multipliers=[0.9, 0.4])
BOTH = dict(TINY, mamba_d_ssm=36, mamba_n_heads=6, mamba_d_head=6, mamba_d_state=5, mamba_n_groups=1)
GOLDEN = {
    "falcon_h1": (130, dict(BOTH, **FACTORS)),
    "falcon_h1_norm": (131, dict(BOTH, mamba_n_groups=3, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_proj_bias=True,
                                 projectors_bias=True, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                 ssm_multipliers=[1.0, 1.0, 2.0, 1.0, 1.0])),
}
SIX = {
    "factors of everything, grouped": dict(BOTH, **FACTORS, mamba_n_groups=2),
    "norm before the gate, two groups, tied, linear": dict(BOTH, mamba_n_groups=2, mamba_rms_norm=True, tie_word_embeddings=True,
                                                           rope_parameters=LINEAR),
    "norm after the gate, biases everywhere, one key head": dict(BOTH, **FACTORS, mamba_rms_norm=True, mamba_norm_before_gate=False,
                                                                attention_bias=True, mlp_bias=True, projectors_bias=True,
                                                                mamba_proj_bias=True, num_key_value_heads=1),
    "channels by mamba_expand, wide states, gelu, llama3": dict(BOTH, mamba_d_ssm=None, mamba_expand=3, mamba_n_heads=9, mamba_d_head=8,
                                                                mamba_d_state=20, hidden_act="gelu", rope_parameters=LLAMA3),
    "no bias of the convolution, one tap, limits, yarn": dict(BOTH, mamba_conv_bias=False, mamba_d_conv=1, time_step_limit=(0.6, 0.8),
                                                              head_dim=10, rope_parameters=YARN),
    "one layer, one wide head, large epsilon, dynamic": dict(BOTH, **FACTORS, num_hidden_layers=1, mamba_n_heads=1, mamba_d_head=36,
                                                             mamba_rms_norm=True, rms_norm_eps=0.1, num_key_value_heads=4,
                                                             rope_parameters=DYNAMIC),
}
SWEEP = {"falcon_h1": dict(SWEPT, attention_bias=False, mlp_bias=False, projectors_bias=False, attention_dropout=0.0, rms_norm_eps=1e-5,
                           head_dim=8, mamba_d_ssm=64, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=8, mamba_d_head=16,
                           mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False,
                           mamba_rms_norm=True, mamba_norm_before_gate=True, lm_head_multiplier=0.5, embedding_multiplier=2.0,
                           key_multiplier=0.7, attention_in_multiplier=0.8, attention_out_multiplier=0.9, ssm_in_multiplier=1.1,
                           ssm_out_multiplier=0.6, ssm_multipliers=[0.5, 0.7, 0.9, 1.1, 1.3], mlp_multipliers=[0.8, 0.6])}
OTHER = {"mamba_norm_before_gate": [False], "lm_head_multiplier": [1.0], "key_multiplier": [1.0, 0.2], "ssm_out_multiplier": [1.0],
         "attention_in_multiplier": [1.0], "attention_out_multiplier": [1.0], "ssm_in_multiplier": [1.0],
         "ssm_multipliers": [[1.0, 1.0, 1.0, 1.0, 1.0]], "mlp_multipliers": [[1.0, 1.0]]}
