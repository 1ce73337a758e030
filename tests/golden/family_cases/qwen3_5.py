"""Configurations of Qwen3.5; see family_cases/__init__.py."""
from family_cases import FULL, LINEAR, SWEPT, TINY, YARN

TYPE = "qwen3_5_text"
DELTA = "linear_attention"
HYBRID = dict(TINY, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2,
              linear_num_value_heads=4)
# Seeds with which the gradients that transformers computes in fp32 are within 1e-5 of those in fp64: with others those of A_log are
# off by half of what the tests allow.
GOLDEN = {
    "qwen3_5": (102, dict(HYBRID, layer_types=[DELTA, FULL])),
    "qwen3_5_tied": (103, dict(HYBRID, num_hidden_layers=2, layer_types=[FULL, DELTA], tie_word_embeddings=True, attention_bias=True,
                              linear_conv_kernel_dim=2, linear_num_key_heads=1, linear_num_value_heads=3, head_dim=8,
                              rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5))),
}
SIX = {
    "linear layers alone, tied": dict(HYBRID, layer_types=[DELTA, DELTA], tie_word_embeddings=True),
    "attention alone, one key head, linear": dict(HYBRID, layer_types=[FULL, FULL], num_key_value_heads=1, rope_parameters=LINEAR),
    "every fourth layer attends, wide values": dict(HYBRID, num_hidden_layers=4, linear_key_head_dim=12, linear_value_head_dim=20,
                                                    linear_num_key_heads=4, linear_num_value_heads=4),
    "one head for keys, six for values, biases": dict(HYBRID, layer_types=[DELTA, FULL], linear_num_key_heads=1,
                                                      linear_num_value_heads=6, attention_bias=True),
    "a convolution of seven, heads of 17, large epsilon": dict(HYBRID, num_hidden_layers=3, layer_types=[FULL, DELTA, DELTA],
                                                               linear_conv_kernel_dim=7, linear_key_head_dim=17,
                                                               linear_value_head_dim=17, rms_norm_eps=0.1),
    "a convolution of one, whole heads rotated, yarn": dict(HYBRID, layer_types=[DELTA, FULL], linear_conv_kernel_dim=1,
                                                            rope_parameters=dict(YARN, partial_rotary_factor=1.0)),
}
SWEEP = {"qwen3_5_text": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, head_dim=16,
                              linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
                              linear_num_value_heads=4, layer_types=[DELTA, FULL, DELTA])}
OTHER = {"layer_types": [[DELTA, DELTA, FULL], [DELTA] * 3], "full_attention_interval": [2, 3], "linear_num_key_heads": [1, 3],
         "linear_num_value_heads": [2], "linear_key_head_dim": [4], "linear_value_head_dim": [4], "linear_conv_kernel_dim": [3],
         "mtp_num_hidden_layers": [1], "attn_output_gate": [False, True], "mamba_ssm_dtype": ["float32"]}
