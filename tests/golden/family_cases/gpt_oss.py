"""Configurations of gpt-oss; see family_cases/__init__.py."""
from family_cases import FULL, LINEAR, LLAMA3, SLIDING, SWEPT, TINY, YARN

TYPE = "gpt_oss"
FUSED = True  # files hold the experts as transformers keeps them: fused and transposed
OSS = dict(TINY, hidden_size=32, intermediate_size=20, head_dim=8, num_local_experts=5, num_experts_per_tok=2, sliding_window=6,
           rope_parameters=dict(YARN, truncate=False), swiglu_limit=0.8)
GOLDEN = {"gpt_oss": (90, dict(OSS, num_hidden_layers=3, router_aux_loss_coef=0.3, output_router_logits=True))}
SIX = {
    "one expert of three, tied, a low limit": dict(OSS, num_local_experts=3, num_experts_per_tok=1, swiglu_limit=0.2,
                                                   tie_word_embeddings=True),
    "all of four experts, no biases of attention, linear": dict(OSS, num_local_experts=4, num_experts_per_tok=4,
                                                                attention_bias=False, rope_parameters=LINEAR),
    "full layers only, one key head, heads of 6, llama3": dict(OSS, num_key_value_heads=1, head_dim=6, layer_types=[FULL, FULL],
                                                               rope_parameters=LLAMA3),
    "windows only, of one key, as many key heads": dict(OSS, num_key_value_heads=4, layer_types=[SLIDING] * 2, sliding_window=1),
    "64 narrow experts, auxiliary loss, yarn that truncates": dict(OSS, num_local_experts=64, num_experts_per_tok=8,
                                                                   intermediate_size=4, output_router_logits=True,
                                                                   router_aux_loss_coef=0.7, rope_parameters=YARN),
    "five layers, wide experts, its own rotary settings, large epsilon": dict(OSS, num_hidden_layers=5, intermediate_size=99,
                                                                              rms_norm_eps=0.1, rope_parameters=None,
                                                                              swiglu_alpha=0.9, swiglu_limit=7.0),
}
SWEEP = {"gpt_oss": dict(SWEPT, head_dim=8, attention_bias=True, attention_dropout=0.0, rms_norm_eps=1e-5, sliding_window=16,
                         layer_types=[SLIDING, FULL, SLIDING], num_local_experts=5, num_experts_per_tok=2, swiglu_alpha=1.702,
                         swiglu_limit=0.8, output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {"num_experts_per_tok": [1, 5], "num_local_experts": [4], "swiglu_limit": [0.1, 7.0], "swiglu_alpha": [1.0],
         "layer_types": [[FULL] * 3, [FULL, SLIDING]]}
